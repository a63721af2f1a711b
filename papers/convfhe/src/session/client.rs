//! The client's side of one-round sessions. Encryption and decryption are elsewhere ([`crate::party`]): no secret is here.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use jaguar_engine::{EngineError, one_round};
use jaguar_graph::bundle::{FileError, ModelId};
use jaguar_wire::{Channel, Stage};

use super::message::{CHUNK, From, Have, MAX_MESSAGE, MAX_REASON, Reply, Request};
use super::{NAME, Terms, Ticket, VERSION};

/// What a client hears while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many evaluations are before its own.
    Queued(u32),
    /// So many layers of so many are done; of none: the server reads the keys.
    Layers(u32, u32),
}

/// Keys in a file.
#[derive(Clone, Debug)]
pub struct Keys<'a> {
    /// The file of the keys.
    pub path: &'a Path,
    /// How many bytes the file has.
    pub bytes: u64,
    /// BLAKE3 of all of them.
    pub hash: [u8; 32],
}

/// What became of keys that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Bytes that the server had before.
    pub had: u64,
    /// Bytes that were sent now.
    pub sent: u64,
}

/// A session whose parties agree on the protocol. After an error it is of no use.
pub struct Session {
    channel: Channel,
    model: ModelId,
    terms: Terms,
    /// Bytes of an encrypted answer.
    answer: Option<usize>,
    /// The answer that is waited for.
    awaited: Option<Ticket>,
}

impl Session {
    /// Greets the server at the other end of `channel`.
    ///
    /// # Errors
    /// When the connection fails, the server does not offer this protocol in this version, or its terms make no sense.
    pub fn open(mut channel: Channel) -> Result<Self, EngineError> {
        let mut greet = || -> Result<_, EngineError> {
            let (model, parameters) = one_round::ask(&mut channel, NAME, VERSION)?;
            let terms: Terms = jaguar_wire::decode("the server's terms", &parameters)?;
            let malformed = |what: String| EngineError::PeerMisbehaved(format!("it offers {what}"));
            terms.check().map_err(malformed)?;
            one_round::choose(&mut channel, NAME, VERSION)?;
            Ok((model, terms))
        };
        match greet() {
            Ok((model, terms)) => Ok(Self { channel, model, terms, answer: None, awaited: None }),
            Err(e) => {
                one_round::tell(&mut channel, &e);
                Err(e)
            }
        }
    }

    /// The model's public name, which tells compiled models apart.
    pub fn model(&self) -> ModelId {
        self.model
    }

    /// The model, the set, and the limits that the server offers.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Bytes that were sent and received until now.
    pub fn moved(&mut self) -> [u64; 2] {
        let total = self.channel.total();
        [total.sent, total.received]
    }

    /// Says who this client is. Answers have `answer` bytes. To be called first.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn introduce(&mut self, client: &[u8; 32], answer: usize) -> Result<(), EngineError> {
        self.answer = Some(answer);
        Ok(self.channel.send(client)?)
    }

    /// Runs a part of the session; the server is told if it fails.
    fn guarded<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        part(self).inspect_err(|e| one_round::tell(&mut self.channel, e))
    }

    /// Sends what the server lacks of the keys, from the file. `progress` hears how many bytes of how many are there.
    ///
    /// # Errors
    /// When the connection fails, the file cannot be read, or the server refuses. What has arrived stays there: the next session sends
    /// the rest.
    pub fn give_keys(
        &mut self,
        keys: &Keys<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Given, EngineError> {
        self.guarded(|session| {
            let channel = &mut session.channel;
            channel.enter(Stage::Client, "keys");
            let total = keys.bytes;
            channel.send_message(&Request::Keys { bytes: total, hash: keys.hash })?;
            let there: Have = channel.recv_message("what is there of the keys", MAX_MESSAGE)?;
            if there.bytes == total && there.hash == keys.hash {
                return Ok(Given { had: total, sent: 0 });
            }
            if there.bytes >= total {
                let text = format!("it says that it has {} bytes of {total} of the keys", there.bytes);
                return Err(EngineError::PeerMisbehaved(text));
            }
            let failed = |e: io::Error| FileError::new("reading", keys.path, e);
            let mut file = File::open(keys.path).map_err(failed)?;
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader((&mut file).take(there.bytes)).map_err(failed)?;
            let mut sent = there.bytes;
            if hasher.finalize() != there.hash {
                // What is there is the beginning of something else.
                sent = 0;
                hasher.reset();
                file.seek(SeekFrom::Start(0)).map_err(failed)?;
            }
            let had = sent;
            channel.send_message(&From { offset: sent })?;
            let mut chunk = vec![0; CHUNK];
            while sent < total {
                progress(sent, total);
                let length = CHUNK.min(usize::try_from(total - sent).unwrap_or(CHUNK));
                let chunk = &mut chunk[..length];
                file.read_exact(chunk).map_err(failed)?;
                hasher.update(chunk);
                channel.send(chunk)?;
                channel.send(hasher.finalize().as_bytes())?;
                sent += length as u64;
            }
            progress(total, total);
            let there: Have = channel.recv_message("a receipt for the keys", MAX_MESSAGE)?;
            if there.bytes != total || there.hash != keys.hash {
                let text = format!("it acknowledges {} bytes of {total} of the keys", there.bytes);
                return Err(EngineError::PeerMisbehaved(text));
            }
            Ok(Given { had, sent: total - had })
        })
    }

    /// Sends an encrypted input. If the client `waits`, [`answer`](Self::answer) is next.
    ///
    /// # Errors
    /// When the connection fails, or the server refuses.
    pub fn send(&mut self, input: &[u8], waits: bool) -> Result<Ticket, EngineError> {
        self.guarded(|session| {
            let channel = &mut session.channel;
            channel.enter(Stage::Online, "input");
            channel.send_message(&Request::Input { waits })?;
            channel.send(input)?;
            let ticket: Ticket = channel.recv_message("a ticket", MAX_MESSAGE)?;
            session.awaited = waits.then_some(ticket);
            Ok(ticket)
        })
    }

    /// Asks for the answer to an input of an earlier session. [`answer`](Self::answer) is next.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn collect(&mut self, ticket: Ticket) -> Result<(), EngineError> {
        self.channel.enter(Stage::Online, "input");
        self.channel.send_message(&Request::Collect { ticket })?;
        self.awaited = Some(ticket);
        Ok(self.channel.flush()?)
    }

    /// Waits for the encrypted answer, and tells the server that it is here: the server forgets it then.
    ///
    /// That is told before anybody can try to decrypt it, so whatever comes of decryption, the server sees the same bytes. Who sends what comes
    /// next, too, before it decrypts shows it no difference in time either. A server that deviates could learn a bit of the client's secret
    /// from each answer otherwise.
    ///
    /// # Errors
    /// When the connection fails, or the server has no answer to give; it says why, and the session goes on.
    pub fn answer(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<u8>, EngineError> {
        let length = self.answer.unwrap_or(0);
        let none = |reason: String| Err(EngineError::Protocol { name: NAME.into(), reason });
        let answered = self.guarded(|session| {
            let channel = &mut session.channel;
            channel.enter(Stage::Online, "answer");
            loop {
                match channel.recv_message("an answer", MAX_MESSAGE + MAX_REASON)? {
                    Reply::Queued { ahead } => progress(Progress::Queued(ahead)),
                    Reply::Running { done, of } => progress(Progress::Layers(done, of)),
                    Reply::Answer => {
                        let answer = channel.recv(length)?;
                        if let Some(ticket) = session.awaited.take() {
                            let told = channel.send_message(&Request::Received { ticket });
                            // What is here is good, whatever becomes of the receipt; a connection that is gone shows with the next message.
                            let _ = told.and_then(|()| channel.flush());
                        }
                        return Ok(Ok(answer));
                    }
                    Reply::Failed { reason } => {
                        let shown: String =
                            reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
                        return Ok(none(format!("the server has no answer: {shown}")));
                    }
                    Reply::Unknown => {
                        let reason = "the server has no answer under this ticket for this client: it was fetched before, or is too old";
                        return Ok(none(reason.into()));
                    }
                }
            }
        });
        answered?
    }

    /// Says good-bye.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn leave(mut self) -> Result<(), EngineError> {
        self.channel.send_message(&Request::Leave)?;
        Ok(self.channel.flush()?)
    }
}
