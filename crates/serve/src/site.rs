//! The page for browsers, and the client that it loads: the files of `web/`, in this program.

use jaguar_net::Page;

macro_rules! page {
    ($path:literal, $kind:literal, $file:literal) => {
        Page { path: $path, kind: $kind, body: include_bytes!(concat!("../../../web/", $file)) }
    };
}

/// For [`Listener::with_pages`](jaguar_net::Listener::with_pages).
pub const PAGES: &[Page] = &[
    page!("/", "text/html; charset=utf-8", "page/index.html"),
    page!("/page.css", "text/css; charset=utf-8", "page/page.css"),
    page!("/page.js", "text/javascript; charset=utf-8", "page/page.js"),
    page!("/icon.svg", "image/svg+xml", "page/icon.svg"),
    page!("/client/jaguar.js", "text/javascript; charset=utf-8", "client/jaguar.js"),
    page!("/client/shared.js", "text/javascript; charset=utf-8", "client/shared.js"),
    page!("/client/hints.js", "text/javascript; charset=utf-8", "client/hints.js"),
    page!("/client/platform.js", "text/javascript; charset=utf-8", "client/platform.js"),
    page!("/client/session.js", "text/javascript; charset=utf-8", "client/session.js"),
    page!("/client/socket.js", "text/javascript; charset=utf-8", "client/socket.js"),
    page!("/client/thread.js", "text/javascript; charset=utf-8", "client/thread.js"),
    page!("/client/jaguar_web.wasm.gz", "application/gzip", "client/jaguar_web.wasm.gz"),
];
