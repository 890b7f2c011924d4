//! The output of a session in the background (`-F`): it is kept in memory until somebody attaches.
//!
//! In: the output and the messages of the session. Out: frames on a local socket, for `spile attach`
//! and `spile stop`. The memory is limited: while nobody reads, the oldest output makes room, and its
//! lines are counted.
//!
//! The socket has an abstract name, so no file stays behind. It serves root and the session's user. One
//! client reads; others can only end the session.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::session::events::Signals;

/// A client's request to read the output.
pub const ATTACH: u8 = b'a';
/// A client's request to end the session. The client reads the rest if nobody else does.
pub const STOP: u8 = b's';

/// Bytes in front of a frame's contents: the stream, and the length as a 32-bit little-endian number.
const HEADER: usize = 5;
/// Bytes of a frame's contents.
const MOST: usize = 64 << 10;

/// The stream of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The session has ended; one byte is its exit status.
    End,
    /// The script's output.
    Output,
    /// The session's messages.
    Messages,
}

/// Stream of each number.
const STREAMS: [Stream; 3] = [Stream::End, Stream::Output, Stream::Messages];

/// Reads a frame. `None` if the session is gone.
///
/// # Errors
/// Those of the socket, and bytes that are no frame.
pub fn read_frame(from: &mut impl Read) -> io::Result<Option<(Stream, Vec<u8>)>> {
    let mut header = [0; HEADER];
    match from.read_exact(&mut header) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let [stream, length @ ..] = header;
    let length = u32::from_le_bytes(length) as usize;
    let stream = STREAMS.get(usize::from(stream)).filter(|_| length <= MOST);
    let stream = stream.ok_or(io::ErrorKind::InvalidData)?;
    let mut contents = vec![0; length];
    from.read_exact(&mut contents)?;
    Ok(Some((*stream, contents)))
}

fn frame(stream: Stream, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![stream as u8];
    bytes.extend((contents.len() as u32).to_le_bytes());
    bytes.extend(contents);
    bytes
}

/// The address of a session's socket.
fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("spile/{pid}"))
}

/// Connects to the session of a process.
///
/// # Errors
/// There is no such session, or it belongs to another user.
pub fn connect(pid: u32) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(pid)?)?;
    match is_trusted(&stream) {
        true => Ok(stream),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// The processes of the sessions in the background of this network namespace, from the text of
/// `/proc/net/unix`.
pub fn sessions(table: &str) -> Vec<u32> {
    let name = |line: &str| line.rsplit_once(" @spile/")?.1.parse().ok();
    let mut all: Vec<u32> = table.lines().filter_map(name).collect();
    all.sort_unstable();
    // Connections have the name of their socket, too.
    all.dedup();
    all
}

/// Whether the other end belongs to root or to this user.
fn is_trusted(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// A connection.
struct Client {
    stream: UnixStream,
    /// Whether epoll waits for room to write.
    blocked: bool,
}

/// The output of a session in the background, and its clients.
pub struct Recorder {
    listener: UnixListener,
    /// Ready if a client has to be served.
    epoll: OwnedFd,
    /// The client that reads.
    reader: Option<Client>,
    /// Clients that have not said what they want, or wait for the end.
    others: Vec<Client>,
    frames: VecDeque<Vec<u8>>,
    /// Bytes in `frames`.
    bytes: usize,
    /// Limit of `bytes`.
    limit: usize,
    /// Bytes of the first frame that the reader has.
    sent: usize,
    /// Number of lines that made room.
    lost: u64,
}

impl Recorder {
    /// Creates the socket of this process's session. `limit` is the number of bytes that are kept.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn new(limit: usize) -> io::Result<Recorder> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        Ok(Recorder {
            listener,
            epoll,
            reader: None,
            others: Vec::new(),
            frames: VecDeque::new(),
            bytes: 0,
            limit,
            sent: 0,
            lost: 0,
        })
    }

    /// Appends to a stream, and sends what the reader takes now.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        for contents in bytes.chunks(MOST) {
            self.bytes += contents.len() + HEADER;
            self.frames.push_back(frame(stream, contents));
        }
        self.send();
        while self.bytes > self.limit && self.frames.len() > 1 {
            // The reader has a part of the first one.
            let oldest = usize::from(self.sent > 0);
            let Some(old) = self.frames.remove(oldest) else {
                break;
            };
            self.bytes -= old.len();
            self.lost += old[HEADER..].iter().filter(|b| **b == b'\n').count() as u64;
        }
    }

    /// Number of lines that made room for later ones.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Serves clients; whether one of them asks for the end of the session.
    pub fn serve(&mut self) -> bool {
        let mut ready = Vec::with_capacity(16);
        // The events only wake: each client is asked.
        let _ = epoll::wait(
            &self.epoll,
            spare_capacity(&mut ready),
            Some(&Timespec::default()),
        );
        while let Ok((stream, _)) = self.listener.accept() {
            if is_trusted(&stream) && stream.set_nonblocking(true).is_ok() {
                let data = epoll::EventData::new_u64(1);
                let added = epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN);
                let blocked = false;
                self.others
                    .extend(added.is_ok().then_some(Client { stream, blocked }));
            }
        }
        let mut end = false;
        for mut client in std::mem::take(&mut self.others) {
            match client.request() {
                Ok(None) => self.others.push(client),
                Ok(Some(STOP)) => {
                    end = true;
                    self.welcome(client, true);
                }
                Ok(Some(ATTACH)) => self.welcome(client, false),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        if let Some(reader) = &mut self.reader {
            match reader.request() {
                Ok(request) => end |= request == Some(STOP),
                Err(_) => self.leave(),
            }
        }
        self.send();
        end
    }

    /// Makes a client the reader, if there is none.
    fn welcome(&mut self, mut client: Client, waits: bool) {
        if self.reader.is_none() {
            self.reader = Some(client);
        } else if waits {
            self.others.push(client);
        } else {
            let text = b"another client is attached to this session\n";
            let both = [frame(Stream::Messages, text), frame(Stream::End, &[1])].concat();
            // A client that is gone needs no answer.
            let _ = client.stream.write(&both);
        }
    }

    /// The reader is gone: the rest stays for the next one, which begins with a whole frame.
    fn leave(&mut self) {
        self.reader = None;
        if self.sent > 0 {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        self.sent = 0;
        let first = self.frames.pop_front();
        self.bytes -= first.map_or(0, |f| f.len());
    }

    /// Sends what the reader takes without waiting.
    fn send(&mut self) {
        while let (Some(reader), Some(first)) = (&mut self.reader, self.frames.front()) {
            match reader.stream.write(&first[self.sent..]) {
                Ok(n) if self.sent + n < first.len() => self.sent += n,
                Ok(_) => self.drop_first(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return reader.block(&self.epoll, true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.leave(),
            }
        }
        if let Some(reader) = &mut self.reader {
            reader.block(&self.epoll, false);
        }
    }

    /// Ends the session for its clients: waits until one has read everything, and gives it the exit
    /// status. With `leave`, waits only if there is one.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`]: a signal ended the wait.
    pub fn hand_over(&mut self, status: u8, leave: bool, signals: &Signals) -> io::Result<()> {
        loop {
            self.serve();
            if self.reader.is_some() && self.frames.is_empty() {
                break;
            }
            if leave && self.reader.is_none() && self.others.is_empty() {
                return Ok(());
            }
            let mut fds = [
                PollFd::new(&self.epoll, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let signalled = !fds[1].revents().is_empty();
            if signalled && signals.poll() && signals.end_requested() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        let end = frame(Stream::End, &[status]);
        for client in self.reader.iter_mut().chain(&mut self.others) {
            // A client that is gone needs no status. An empty socket has room for a frame.
            let _ = client.stream.write(&end);
        }
        Ok(())
    }
}

impl AsFd for Recorder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Client {
    /// The last byte of what the client has sent, if any. An error if it is gone.
    fn request(&mut self) -> io::Result<Option<u8>> {
        let mut bytes = [0; 64];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Ok(n) => Ok(Some(bytes[n - 1])),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets whether room to write is an event.
    fn block(&mut self, epoll: &OwnedFd, blocked: bool) {
        if self.blocked == blocked {
            return;
        }
        self.blocked = blocked;
        let flags = match blocked {
            true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            false => epoll::EventFlags::IN,
        };
        // Without the event, the next output tries again.
        let _ = epoll::modify(epoll, &self.stream, epoll::EventData::new_u64(1), flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames that a client has been sent so far.
    fn frames(from: &mut UnixStream) -> Vec<(Stream, String)> {
        from.set_nonblocking(true).unwrap();
        let mut all = Vec::new();
        while let Ok(Some((stream, bytes))) = read_frame(from) {
            all.push((stream, String::from_utf8(bytes).unwrap()));
        }
        from.set_nonblocking(false).unwrap();
        all
    }

    fn output(text: &str) -> (Stream, String) {
        (Stream::Output, text.to_owned())
    }

    // One test, because the socket's name is the process's.
    #[test]
    fn clients_read_keep_and_end() {
        let mut recorder = Recorder::new(64).unwrap();
        let me = std::process::id();
        let table = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(sessions(&table).contains(&me));
        recorder.push(Stream::Output, b"early\n");
        let mut first = connect(me).unwrap();
        first.write_all(&[ATTACH]).unwrap();
        assert!(!recorder.serve());
        recorder.push(Stream::Messages, b"warning\n");
        let both = [output("early\n"), (Stream::Messages, "warning\n".into())];
        assert_eq!(frames(&mut first), both);
        // A second one cannot read, and a third one can end.
        let mut second = connect(me).unwrap();
        second.write_all(&[ATTACH]).unwrap();
        assert!(!recorder.serve());
        let refused = frames(&mut second);
        assert_eq!(refused.last(), Some(&(Stream::End, "\u{1}".into())));
        let mut third = connect(me).unwrap();
        third.write_all(&[STOP]).unwrap();
        assert!(recorder.serve());
        // Without a reader, the oldest lines make room.
        drop(first);
        assert!(!recorder.serve());
        for n in 10..20 {
            recorder.push(Stream::Output, format!("line {n}\n").as_bytes());
        }
        assert_eq!(recorder.lost(), 6);
        let mut last = connect(me).unwrap();
        last.write_all(&[ATTACH]).unwrap();
        assert!(!recorder.serve());
        let kept: Vec<_> = (16..20).map(|n| output(&format!("line {n}\n"))).collect();
        assert_eq!(frames(&mut last), kept);
        let signals = Signals::new().unwrap();
        recorder.hand_over(3, false, &signals).unwrap();
        for client in [&mut last, &mut third] {
            assert_eq!(frames(client), [(Stream::End, "\u{3}".into())]);
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error() {
        assert!(read_frame(&mut &[7, 1, 0, 0, 0, 0][..]).is_err());
        assert!(read_frame(&mut &[1, 255, 255, 255, 255][..]).is_err());
        assert!(read_frame(&mut &[1, 2, 0, 0, 0, 0][..]).is_err());
        assert!(matches!(read_frame(&mut &[][..]), Ok(None)));
    }
}
