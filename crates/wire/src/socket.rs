//! Sockets as byte streams: TCP, and Unix domain sockets where there are any.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::stream::ByteStream;

/// Both kinds have the same calls under the same names.
macro_rules! byte_stream {
    ($socket:ty) => {
        impl ByteStream for $socket {
            fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                let mut socket = self;
                Read::read(&mut socket, buf)
            }

            fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                let mut socket = self;
                socket.write_vectored(parts)
            }

            fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
                <$socket>::set_read_timeout(self, Some(timeout))
            }

            fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
                <$socket>::set_write_timeout(self, Some(timeout))
            }

            fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                <$socket>::shutdown(self, how)
            }
        }
    };
}

byte_stream!(TcpStream);
#[cfg(unix)]
byte_stream!(UnixStream);
