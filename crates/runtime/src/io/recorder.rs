//! The output of a session in the background (`-F`): it is kept in memory until somebody attaches.
//!
//! In: the output and the messages of the session. Out: frames on a local socket, for `spile attach`
//! and `spile stop`. The memory is limited: while nobody reads, the oldest output makes space, and its
//! lines are counted. A frame stays until its client has acknowledged that it is printed: what a client
//! that leaves has not printed is for the next one.
//!
//! The socket has an abstract name, so no file stays behind. Any user can give a socket such a name, so
//! the name is random (nobody can take it first), and [`sessions`] believes only what the kernel says of
//! the process behind it. The socket serves root and the session's user. One client reads; others can
//! only end the session.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use spile_cast::Cast;

use crate::machine::clock::timespec;
use crate::machine::signals::Signals;

/// A client's request to read the output.
pub const ATTACH: u8 = b'a';
/// A client's request to end the session. The client reads the rest if nobody else does.
pub const STOP: u8 = b's';
/// Precedes a 32-bit little-endian number of bytes: the client has printed as many more bytes of frames' contents.
const PRINTED: u8 = b'p';

/// Bytes in front of a frame's contents: the stream, and the length as a 32-bit little-endian number.
const HEADER: usize = 5;
/// Bytes of a frame's contents.
const MOST: usize = 64 << 10;
/// Hexadecimal digits of a socket's random name.
const DIGITS: usize = 32;
/// The time without progress after which a reader gives way to a client that ends the session.
const PATIENCE: Duration = Duration::from_secs(1);
/// Rounds of connecting to sockets whose queue is full, 10 ms apart.
const ROUNDS: usize = 20;

/// The stream of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameStream {
    /// The session has ended; one byte is its exit status.
    End,
    /// The script's output.
    Output,
    /// The session's messages.
    Messages,
}

/// Stream of each number.
const STREAMS: [FrameStream; 3] = [FrameStream::End, FrameStream::Output, FrameStream::Messages];

/// A frame: its stream and its contents.
pub type RecordedFrame = (FrameStream, Vec<u8>);

/// The frames of a session, as its socket gives them.
#[derive(Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Takes what the socket has now; whether the session is still there.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let mut piece = [0; 16 << 10];
        match from.read(&mut piece) {
            Ok(n) => {
                self.bytes.extend(&piece[..n]);
                Ok(n > 0)
            }
            Err(e) if is_for_later(&e) => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// Bytes that are no frame.
    pub fn next_frame(&mut self) -> io::Result<Option<RecordedFrame>> {
        let Some([stream, length @ ..]) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        let stream = STREAMS.get(usize::from(*stream)).filter(|_| length <= MOST);
        let stream = *stream.ok_or(io::ErrorKind::InvalidData)?;
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        let contents = self.bytes.drain(..HEADER + length).skip(HEADER).collect();
        Ok(Some((stream, contents)))
    }
}

fn frame(stream: FrameStream, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![stream as u8];
    bytes.extend(contents.len().fit::<u32>().to_le_bytes());
    bytes.extend(contents);
    bytes
}

/// Number of lines that frames end.
fn lines<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> u64 {
    let contents = frames.into_iter().flat_map(|f| &f[HEADER..]);
    contents.filter(|b| **b == b'\n').count() as u64
}

/// Reports to a session the number of bytes that were printed since the last report. Returns `false` if
/// the socket has no space now.
pub fn acknowledge(mut session: &UnixStream, bytes: u32) -> bool {
    // A socket takes so little as a whole. Other errors are for the next read.
    let told = session.write(&[&[PRINTED][..], &bytes.to_le_bytes()].concat());
    !matches!(told, Err(e) if is_for_later(&e))
}

fn is_for_later(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// A new name for a session's socket. The process is for people who list sockets.
fn new_name() -> io::Result<Vec<u8>> {
    let mut random = [0; DIGITS / 2];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let number = u128::from_le_bytes(random);
    Ok(format!("spile/{}/{number:0DIGITS$x}", std::process::id()).into_bytes())
}

/// The names in `/proc/net/unix` that have the form of a session's socket. Names are bytes, and those of
/// other users can be anything.
fn names(table: &[u8]) -> Vec<&[u8]> {
    let name = |line: &'_ [u8]| -> Option<usize> {
        let start = b" @spile/";
        let begin = line.windows(start.len()).rposition(|w| w == start)?;
        let (pid, random) = line[begin + start.len()..]
            .split_at_checked(line.len().checked_sub(begin + start.len() + DIGITS)?)?;
        let digits = random.iter().all(u8::is_ascii_hexdigit);
        let pid = pid.strip_suffix(b"/")?;
        (digits && !pid.is_empty() && pid.iter().all(u8::is_ascii_digit)).then_some(begin + 2)
    };
    let lines = table.split(|b| *b == b'\n');
    let mut found_names: Vec<&[u8]> = lines.filter_map(|l| Some(&l[name(l)?..])).collect();
    found_names.sort_unstable();
    // Connections have the name of their socket, too.
    found_names.dedup();
    found_names
}

/// Connects without waiting; `None` if there is no such socket.
fn connect(name: &[u8]) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket.into())
}

/// A session in the background, and a connection to it.
pub struct Found {
    /// Its process, as the kernel says.
    pub pid: u32,
    /// Its user is this one.
    pub same_user: bool,
    /// The connection, which does not block.
    pub stream: UnixStream,
}

/// The sessions in the background of this network namespace, by process, from the text of
/// `/proc/net/unix`. Process and user of each are those that made its socket, from the kernel.
#[must_use]
pub fn sessions(table: &[u8]) -> Vec<Found> {
    let mut todo = names(table);
    let mut sessions = Vec::new();
    for round in 0..ROUNDS {
        // A socket of another user may have a full queue for ever; so may this user's, for a moment.
        todo.retain(|name| match connect(name) {
            Ok(stream) => {
                sessions.extend(Found::new(stream));
                false
            }
            Err(e) => e == Errno::AGAIN,
        });
        if todo.is_empty() {
            break;
        }
        if round + 1 < ROUNDS {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    sessions.sort_unstable_by_key(|f| f.pid);
    sessions
}

impl Found {
    fn new(stream: UnixStream) -> Option<Found> {
        let peer = socket_peercred(&stream).ok()?;
        Some(Found {
            pid: peer.pid.as_raw_nonzero().get().cast_unsigned(),
            same_user: peer.uid == geteuid(),
            stream,
        })
    }
}

/// Whether the other end belongs to root or to this user.
fn is_trusted(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// A connection.
struct Client {
    stream: UnixStream,
    /// Whether epoll waits for space to write.
    blocked: bool,
    /// The beginning of a request.
    heard: Vec<u8>,
}

/// What a client says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Attach,
    Stop,
    /// So many bytes are printed.
    Printed(usize),
    /// Something else.
    Unknown,
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
    /// Number of frames that the reader has, and has not printed.
    given: usize,
    /// Bytes of the next frame that the reader has.
    sent: usize,
    /// Bytes of the first frame's contents that the reader has printed.
    printed: usize,
    /// The time at which the reader last printed something.
    progress: Instant,
    /// Number of lines that made space.
    lost: u64,
}

impl Recorder {
    /// Creates the socket of this process's session. `limit` is the number of bytes that are kept.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn new(limit: usize) -> io::Result<Recorder> {
        let address = SocketAddr::from_abstract_name(new_name()?)?;
        let listener = UnixListener::bind_addr(&address)?;
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
            given: 0,
            sent: 0,
            printed: 0,
            progress: Instant::now(),
            lost: 0,
        })
    }

    /// Appends to a stream, and sends what the reader takes now.
    pub fn push(&mut self, stream: FrameStream, bytes: &[u8]) {
        for contents in bytes.chunks(MOST) {
            self.bytes += contents.len() + HEADER;
            self.frames.push_back(frame(stream, contents));
        }
        self.send();
        // What the reader has is on its way.
        let oldest = self.given + usize::from(self.sent > 0);
        while self.bytes > self.limit && self.frames.len() > oldest + 1 {
            let Some(old) = self.frames.remove(oldest) else {
                break;
            };
            self.bytes -= old.len();
            self.lost += lines([&old]);
        }
    }

    /// Number of lines that made space for later ones.
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
                let client = Client {
                    stream,
                    blocked: false,
                    heard: Vec::new(),
                };
                self.others.extend(added.is_ok().then_some(client));
            }
        }
        let mut end = false;
        for mut client in std::mem::take(&mut self.others) {
            match client.request() {
                Ok(None) => self.others.push(client),
                Ok(Some(Request::Stop)) => {
                    end = true;
                    self.welcome(client, true);
                }
                Ok(Some(Request::Attach)) => self.welcome(client, false),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        end |= self.hear();
        self.send();
        end
    }

    /// Takes what the reader says; whether it asks for the end.
    fn hear(&mut self) -> bool {
        let mut end = false;
        while let Some(reader) = &mut self.reader {
            match reader.request() {
                Ok(None) => break,
                Ok(Some(Request::Printed(bytes))) => self.forget(bytes),
                Ok(Some(request)) => end |= request == Request::Stop,
                Err(_) => self.leave(),
            }
        }
        end
    }

    /// Notes the number of bytes that the reader has printed since the last note.
    fn forget(&mut self, bytes: usize) {
        self.progress = Instant::now();
        self.printed += bytes;
        while self.given > 0
            && let Some(first) = self.frames.front()
            && first.len() - HEADER <= self.printed
        {
            self.printed -= first.len() - HEADER;
            self.bytes -= first.len();
            self.frames.pop_front();
            self.given -= 1;
        }
        if self.given == 0 {
            self.printed = 0;
        }
    }

    /// Makes a client the reader, if there is none.
    fn welcome(&mut self, mut client: Client, waits: bool) {
        let Some(reader) = &self.reader else {
            self.progress = Instant::now();
            self.reader = Some(client);
            return;
        };
        if waits {
            return self.others.push(client);
        }
        let text = format!("{} is attached to this session\n", reader.name());
        let both = [
            frame(FrameStream::Messages, text.as_bytes()),
            frame(FrameStream::End, &[1]),
        ]
        .concat();
        // A client that is gone needs no answer.
        let _ = client.stream.write(&both);
    }

    /// The reader is gone: what it has not printed stays for the next one, in whole frames.
    fn leave(&mut self) {
        self.reader = None;
        self.drop_printed();
        (self.given, self.sent) = (0, 0);
    }

    /// Removes what is printed from the first frame.
    fn drop_printed(&mut self) {
        if let Some(first) = self.frames.front_mut().filter(|_| self.printed > 0) {
            let stream = STREAMS[usize::from(first[0])];
            let rest = frame(stream, &first[HEADER + self.printed..]);
            self.bytes -= first.len() - rest.len();
            *first = rest;
        }
        self.printed = 0;
    }

    /// A reader that prints nothing gives way to a client that ends the session. What it has is in its
    /// socket and cannot be taken back: the message to the other one has its lines.
    fn displace(&mut self) {
        let Some(reader) = self.reader.take() else {
            return;
        };
        self.drop_printed();
        let held: Vec<_> = self.frames.drain(..self.given).collect();
        self.bytes -= held.iter().map(Vec::len).sum::<usize>();
        let count = lines(&held);
        (self.given, self.sent) = (0, 0);
        let text = format!(
            "WARNING: {} was attached and prints nothing; {count} lines of the output are still with it\n",
            reader.name()
        );
        let text = frame(FrameStream::Messages, text.as_bytes());
        self.bytes += text.len();
        self.frames.push_front(text);
        if !self.others.is_empty() {
            self.reader = Some(self.others.remove(0));
        }
    }

    /// Sends what the reader takes without waiting.
    fn send(&mut self) {
        while let (Some(reader), Some(next)) = (&mut self.reader, self.frames.get(self.given)) {
            match reader.stream.write(&next[self.sent..]) {
                Ok(n) if self.sent + n < next.len() => self.sent += n,
                Ok(_) => (self.given, self.sent) = (self.given + 1, 0),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return reader.block(&self.epoll, true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // Its last words come first.
                    self.hear();
                    return self.leave();
                }
            }
        }
        if let Some(reader) = &mut self.reader {
            reader.block(&self.epoll, false);
        }
    }

    /// Ends the session for its clients: waits until one has printed everything, and gives it the exit
    /// status. With `leave`, waits only if there is one.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`]: a signal ended the wait.
    pub fn hand_over(&mut self, status: u8, leave: bool, signals: &Signals) -> io::Result<()> {
        self.progress = Instant::now();
        loop {
            self.serve();
            if self.reader.is_some() && self.frames.is_empty() {
                break;
            }
            if leave && self.reader.is_none() && self.others.is_empty() {
                return Ok(());
            }
            let patience = match self.reader.is_some() && !self.others.is_empty() {
                true => Some(PATIENCE.saturating_sub(self.progress.elapsed())),
                false => None,
            };
            if patience.is_some_and(|left| left.is_zero()) {
                self.displace();
                continue;
            }
            let mut fds = [
                PollFd::new(&self.epoll, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            let patience = patience.map(timespec);
            match poll(&mut fds, patience.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let signalled = !fds[1].revents().is_empty();
            if signalled && signals.poll() && signals.end_requested() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        let end = frame(FrameStream::End, &[status]);
        for client in self.reader.iter_mut().chain(&mut self.others) {
            // A client that is gone needs no status. An empty socket has space for a frame.
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
    /// The next thing that the client says, if any. An error if it is gone.
    fn request(&mut self) -> io::Result<Option<Request>> {
        loop {
            let said = match self.heard[..] {
                [] | [PRINTED] | [PRINTED, _] | [PRINTED, _, _] | [PRINTED, _, _, _] => None,
                [PRINTED, a, b, c, d, ..] => {
                    let bytes = u32::from_le_bytes([a, b, c, d]);
                    Some((Request::Printed(bytes as usize), 5))
                }
                [ATTACH, ..] => Some((Request::Attach, 1)),
                [STOP, ..] => Some((Request::Stop, 1)),
                [..] => Some((Request::Unknown, 1)),
            };
            if let Some((request, length)) = said {
                self.heard.drain(..length);
                return Ok(Some(request));
            }
            let mut bytes = [0; 256];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(n) => self.heard.extend(&bytes[..n]),
                Err(e) if is_for_later(&e) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// The client in messages.
    fn name(&self) -> String {
        match socket_peercred(&self.stream) {
            Ok(peer) => format!("process {}", peer.pid.as_raw_nonzero()),
            Err(_) => "another client".to_owned(),
        }
    }

    /// Sets whether space to write is an event.
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

    /// A client of the tests.
    struct Reader(UnixStream, Frames);

    impl Reader {
        fn new(request: u8) -> Reader {
            let table = std::fs::read("/proc/net/unix").unwrap();
            let me = std::process::id();
            let found = sessions(&table).into_iter().find(|f| f.pid == me);
            let mut stream = found.filter(|f| f.same_user).unwrap().stream;
            stream.write_all(&[request]).unwrap();
            Reader(stream, Frames::default())
        }

        /// Prints all frames that it has been sent so far, or has them only.
        fn frames(&mut self, prints: bool) -> Vec<(FrameStream, String)> {
            while matches!(self.0.peek_some(), Ok(n) if n > 0) {
                self.1.fill(&mut self.0).unwrap();
            }
            let mut all = Vec::new();
            while let Some((stream, bytes)) = self.1.next_frame().unwrap() {
                if prints {
                    assert!(acknowledge(&self.0, bytes.len() as u32));
                }
                all.push((stream, String::from_utf8(bytes).unwrap()));
            }
            all
        }
    }

    /// Whether a socket has something to read.
    trait PeekSome {
        fn peek_some(&self) -> Result<usize, Errno>;
    }

    impl PeekSome for UnixStream {
        fn peek_some(&self) -> Result<usize, Errno> {
            let flags = rustix::net::RecvFlags::PEEK;
            Ok(rustix::net::recv(self, &mut [0; 1], flags)?.0)
        }
    }

    fn output(text: &str) -> (FrameStream, String) {
        (FrameStream::Output, text.to_owned())
    }

    // One test, because sessions are found by their process.
    #[test]
    fn clients_read_keep_and_end() {
        let mut recorder = Recorder::new(64).unwrap();
        recorder.push(FrameStream::Output, b"early\n");
        let mut first = Reader::new(ATTACH);
        assert!(!recorder.serve());
        recorder.push(FrameStream::Messages, b"warning\n");
        let both = [
            output("early\n"),
            (FrameStream::Messages, "warning\n".into()),
        ];
        assert_eq!(first.frames(true), both);
        // A second one cannot read, and a third one can end.
        let mut second = Reader::new(ATTACH);
        assert!(!recorder.serve());
        let refused = second.frames(false);
        assert_eq!(refused.last(), Some(&(FrameStream::End, "\u{1}".into())));
        let mut third = Reader::new(STOP);
        assert!(recorder.serve());
        // What a client has and did not print is for the next one.
        recorder.push(FrameStream::Output, b"printed\nin part\n");
        recorder.push(FrameStream::Output, b"more\n");
        assert_eq!(first.frames(false).len(), 2);
        assert!(acknowledge(&first.0, 8));
        drop(first);
        assert!(!recorder.serve());
        assert_eq!(recorder.lost(), 0);
        let mut next = Reader::new(ATTACH);
        assert!(!recorder.serve());
        assert_eq!(next.frames(true), [output("in part\n"), output("more\n")]);
        // Without a reader, the oldest lines make space.
        drop(next);
        assert!(!recorder.serve());
        for n in 10..20 {
            recorder.push(FrameStream::Output, format!("line {n}\n").as_bytes());
        }
        assert_eq!(recorder.lost(), 6);
        let mut last = Reader::new(ATTACH);
        assert!(!recorder.serve());
        let kept: Vec<_> = (16..20).map(|n| output(&format!("line {n}\n"))).collect();
        assert_eq!(last.frames(true), kept);
        let signals = Signals::new().unwrap();
        recorder.hand_over(3, false, &signals).unwrap();
        for client in [&mut last, &mut third] {
            assert_eq!(client.frames(true), [(FrameStream::End, "\u{3}".into())]);
        }
        drop((recorder, last, third));
        a_reader_that_prints_nothing_gives_way(&signals);
    }

    fn a_reader_that_prints_nothing_gives_way(signals: &Signals) {
        let mut recorder = Recorder::new(1 << 20).unwrap();
        let mut paused = Reader::new(ATTACH);
        assert!(!recorder.serve());
        recorder.push(FrameStream::Output, b"one\ntwo\n");
        let mut stops = Reader::new(STOP);
        assert!(recorder.serve());
        recorder.push(FrameStream::Output, &b"x\n".repeat(400_000));
        let read = std::thread::spawn(move || {
            let (mut text, mut said) = (0, String::new());
            loop {
                let got = stops.frames(true);
                for (stream, contents) in got {
                    match stream {
                        FrameStream::Output => text += contents.lines().count(),
                        FrameStream::Messages => said.push_str(&contents),
                        FrameStream::End => return (text, said),
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        recorder.hand_over(0, true, signals).unwrap();
        let (rest, said) = read.join().unwrap();
        let has = paused.frames(false);
        let has: usize = has.iter().map(|(_, text)| text.lines().count()).sum();
        assert_eq!(rest + has, 400_002, "{said}");
        assert!(
            has > 2 && said.contains(&format!("; {has} lines of the output")),
            "{said}"
        );
    }

    #[test]
    fn names_of_sockets_can_be_anything() {
        let random = "0123456789abcdef".repeat(2);
        let table = format!(
            "Num RefCount ...\n0: 2 @spile/1\n0: 2 @spile/77/{random}\n0: 3 @spile/77/{random}\n\
             @spile/1/{random}\n0: @spile/x/{random}\n0: @spile//{random}\n0: @spile/1/{random}x\n\
             0: @a @spile/78/{random}\n0: /run/spile/1/{random}\n"
        );
        let table = [table.as_bytes(), b"0: 2 @spile/\xff\xfe\n @spile/"].concat();
        let all = [format!("spile/77/{random}"), format!("spile/78/{random}")];
        assert_eq!(names(&table), all.each_ref().map(|n| n.as_bytes()));
        // Nobody listens there.
        assert!(sessions(&table).is_empty());
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error() {
        let next = |bytes: &[u8]| {
            let mut frames = Frames::default();
            frames.fill(&mut &bytes[..]).unwrap();
            frames.next_frame()
        };
        assert!(next(&[7, 1, 0, 0, 0, 0]).is_err());
        assert!(next(&[1, 255, 255, 255, 255]).is_err());
        assert!(matches!(next(&[1, 2, 0, 0, 0, 0]), Ok(None)));
        assert!(matches!(next(&[]), Ok(None)));
        assert_eq!(
            next(&[1, 1, 0, 0, 0, 9]).unwrap(),
            Some((FrameStream::Output, vec![9]))
        );
    }
}
