//! A small HTTP/1.1 server for scrapes: `GET /metrics` (and `/`) in the text exposition format
//! 0.0.4. It runs on the session's event loop. Sockets never block, a request may take [`PATIENCE`]
//! and 8 KiB, and one answer closes the connection, so that a slow client costs only its socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Limit on a client's total time.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Limit on the bytes of a request's head.
const MAX_HEAD: usize = 8192;
/// Limit on concurrent connections; the oldest one is closed for a new one.
const MAX_CONNS: usize = 64;
/// Limit on the number of header lines.
const MAX_HEADERS: usize = 64;

/// One client.
struct Connection {
    stream: TcpStream,
    head: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    since: Instant,
    token: u64,
    /// The answer was sent and the write side is shut down. Further bytes from the client are
    /// discarded, because closing with unread bytes would reset the connection before the answer
    /// arrives.
    draining: bool,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes from the client.
    Read,
    /// Space for the answer.
    Write,
}

/// The next step of the event loop for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Wait for this.
    Wait(Interest),
    /// Nothing: the connection is closed.
    Gone,
}

/// The listening socket and its connections.
pub struct Server {
    listener: TcpListener,
    conns: Vec<Connection>,
    next_token: u64,
}

impl Server {
    /// Listens at `host:port`.
    pub fn bind(addr: &str) -> io::Result<Server> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(Server {
            listener,
            conns: Vec::new(),
            next_token: 0,
        })
    }

    /// The local address, with the actual port if 0 was requested.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The listening socket, for the event loop.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts one waiting client; returns its token and socket for the event loop.
    pub fn accept(&mut self) -> Option<(u64, BorrowedFd<'_>)> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        if self.conns.len() >= MAX_CONNS {
            self.conns.remove(0);
        }
        let token = self.next_token;
        self.next_token += 1;
        self.conns.push(Connection {
            stream,
            head: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            since: Instant::now(),
            token,
            draining: false,
        });
        self.conns.last().map(|c| (token, c.stream.as_fd()))
    }

    /// The socket of a connection.
    pub fn socket(&self, token: u64) -> Option<BorrowedFd<'_>> {
        self.conns
            .iter()
            .find(|c| c.token == token)
            .map(|c| c.stream.as_fd())
    }

    /// Continues a connection that is ready; `scrape` makes the body, and can fail.
    pub fn serve(&mut self, token: u64, scrape: &mut dyn FnMut() -> Option<Vec<u8>>) -> NextStep {
        let Some(index) = self.conns.iter().position(|c| c.token == token) else {
            return NextStep::Gone;
        };
        match self.conns[index].advance(scrape) {
            Ok(Some(wants)) => NextStep::Wait(wants),
            Ok(None) | Err(_) => {
                self.conns.remove(index);
                NextStep::Gone
            }
        }
    }

    /// Closes clients that exceed their time; returns the next deadline.
    pub fn expire(&mut self) -> Option<Instant> {
        self.conns.retain(|c| c.since.elapsed() < PATIENCE);
        self.conns.iter().map(|c| c.since + PATIENCE).min()
    }
}

impl Connection {
    /// Reads, answers and writes as far as possible; `None` when finished.
    fn advance(
        &mut self,
        scrape: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) -> io::Result<Option<Interest>> {
        if self.draining {
            return self.drain();
        }
        if self.answer.is_empty() {
            if !self.read_head()? {
                return Ok(Some(Interest::Read));
            }
            self.answer = respond(&self.head, scrape);
        }
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => return Ok(None),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(Interest::Write));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.stream.shutdown(std::net::Shutdown::Write)?;
        self.draining = true;
        self.drain()
    }

    /// Whether the head is complete, too long, or cut off.
    fn read_head(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 2048];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.head.extend_from_slice(&chunk[..n]);
                    if self.head.len() > MAX_HEAD || parsed(&self.head) != RequestHead::Partial {
                        return Ok(true);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Discards the client's further bytes until it closes.
    fn drain(&mut self) -> io::Result<Option<Interest>> {
        let mut chunk = [0; 2048];
        for _ in 0..64 {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Some(Interest::Read)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }
}

/// The state of a request's head.
#[derive(Debug, PartialEq, Eq)]
enum RequestHead {
    Partial,
    Bad,
    Request { method: String, path: String },
}

fn parsed(head: &[u8]) -> RequestHead {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => RequestHead::Partial,
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default().to_owned();
            RequestHead::Request {
                method: request.method.unwrap_or_default().to_owned(),
                path,
            }
        }
        Err(_) => RequestHead::Bad,
    }
}

/// The whole answer to a request.
fn respond(head: &[u8], scrape: &mut dyn FnMut() -> Option<Vec<u8>>) -> Vec<u8> {
    let text = |status, body: &str| (status, body.as_bytes().to_vec());
    let (mut kind, mut allow) = ("text/plain; charset=utf-8", "");
    let mut bodiless = false;
    let (status, body) = match parsed(head) {
        RequestHead::Request { method, path } => {
            bodiless = method == "HEAD";
            match (&*method, &*path) {
                ("GET" | "HEAD", "/" | "/metrics") => match scrape() {
                    Some(body) => {
                        kind = "text/plain; version=0.0.4; charset=utf-8";
                        ("200 OK", body)
                    }
                    None => text(
                        "500 Internal Server Error",
                        "an error in a prometheus probe\n",
                    ),
                },
                ("GET" | "HEAD", _) => text("404 Not Found", "not found; try /metrics\n"),
                _ => {
                    allow = "Allow: GET, HEAD\r\n";
                    text("405 Method Not Allowed", "only GET\n")
                }
            }
        }
        RequestHead::Partial => text("431 Request Header Fields Too Large", ""),
        RequestHead::Bad => text("400 Bad Request", "bad request\n"),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if !bodiless {
        answer.extend_from_slice(&body);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &str) -> String {
        String::from_utf8(respond(request.as_bytes(), &mut || {
            Some(b"up 1\n".to_vec())
        }))
        .unwrap()
    }

    #[test]
    fn requests_have_their_answers() {
        for (request, status, body) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                "200 OK",
                "up 1\n",
            ),
            ("GET / HTTP/1.0\r\n\r\n", "200 OK", "up 1\n"),
            ("GET /?a=b HTTP/1.1\r\n\r\n", "200 OK", "up 1\n"),
            ("HEAD / HTTP/1.1\r\n\r\n", "200 OK", ""),
            (
                "GET /x HTTP/1.1\r\n\r\n",
                "404 Not Found",
                "not found; try /metrics\n",
            ),
            (
                "POST / HTTP/1.1\r\n\r\n",
                "405 Method Not Allowed",
                "only GET\n",
            ),
            ("\0\0\r\n\r\n", "400 Bad Request", "bad request\n"),
            ("GET /", "431 Request Header Fields Too Large", ""),
        ] {
            let answer = answer(request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{request:?}: {answer}"
            );
            assert_eq!(
                answer.split_once("\r\n\r\n").unwrap().1,
                body,
                "{request:?}"
            );
        }
    }

    #[test]
    fn a_failed_scrape_is_an_internal_error() {
        let text = respond(b"GET /metrics HTTP/1.1\r\n\r\n", &mut || None);
        assert!(text.starts_with(b"HTTP/1.1 500 "));
    }

    /// Serves until the client thread is done.
    fn serve(server: &mut Server, client: std::thread::JoinHandle<String>) -> String {
        let mut tokens = Vec::new();
        while !client.is_finished() {
            if let Some((token, _)) = server.accept() {
                tokens.push(token);
            }
            tokens.retain(|t| server.serve(*t, &mut || Some(b"up 1\n".to_vec())) != NextStep::Gone);
            std::thread::sleep(Duration::from_millis(1));
        }
        client.join().unwrap()
    }

    #[test]
    fn a_client_that_sends_in_pieces_is_served() {
        let mut server = Server::bind("127.0.0.1:0").unwrap();
        let addr = server.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            let mut s = TcpStream::connect(addr).unwrap();
            for part in ["GET /met", "rics HTTP/1.1\r\nHo", "st: here\r\n", "\r\n"] {
                s.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut text = String::new();
            s.read_to_string(&mut text).unwrap();
            text
        });
        let text = serve(&mut server, client);
        assert!(text.ends_with("\r\n\r\nup 1\n"), "{text}");
    }

    #[test]
    fn many_idle_clients_cost_the_oldest() {
        let mut server = Server::bind("127.0.0.1:0").unwrap();
        let addr = server.local_addr().unwrap();
        let clients: Vec<_> = (0..MAX_CONNS + 3)
            .map(|_| TcpStream::connect(addr).unwrap())
            .collect();
        while server.accept().is_some() {}
        assert_eq!(server.conns.len(), MAX_CONNS);
        assert_eq!(server.conns[0].token, 3);
        assert!(server.expire().is_some());
        drop(clients);
    }
}
