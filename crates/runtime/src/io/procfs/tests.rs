//! Files of scripts, read and written by threads of the test.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use super::*;

fn spec(path: &str, read: bool, write: bool) -> FileSpec {
    let mode = match (read, write) {
        (true, true) => 0o600,
        (true, false) => 0o400,
        _ => 0o200,
    };
    FileSpec {
        path: path.into(),
        read,
        write,
        mode,
    }
}

/// Limit of waits for another thread.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Serves until a thread has a result and `writes` texts were written. Readers get `path N`, with
/// increasing N. The thread gets the path of the files, and the number of texts so far.
fn served<T: Send + 'static>(
    files: &mut ProcfsFiles,
    writes: usize,
    work: impl FnOnce(String, &AtomicUsize) -> T + Send + 'static,
) -> (T, Vec<(String, Vec<u8>)>) {
    let (done, result) = mpsc::channel();
    let path = files.path().to_owned();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    thread::spawn(move || done.send(work(path, &count)));
    let (mut reads, mut written) = (0, Vec::new());
    let mut answer = None;
    wait_until("the thread and its texts", || {
        files
            .serve(&mut |request| match request {
                FileRequest::Read(path) => {
                    reads += 1;
                    format!("{path} {reads}").into_bytes()
                }
                FileRequest::Write(path, text) => {
                    written.push((path.to_string(), text));
                    Vec::new()
                }
            })
            .unwrap();
        heard.store(written.len(), Ordering::SeqCst);
        answer = answer.take().or_else(|| result.try_recv().ok());
        answer.is_some() && written.len() >= writes
    });
    (answer.expect("a result"), written)
}

fn name(of: &str) -> String {
    format!("test_{}_{of}", std::process::id())
}

fn texts(written: &[(String, Vec<u8>)]) -> Vec<String> {
    let text = |(path, text): &(String, Vec<u8>)| {
        format!("{path}:{}", String::from_utf8_lossy(text).escape_debug())
    };
    written.iter().map(text).collect()
}

#[test]
fn readers_get_texts_of_their_own() {
    let specs = vec![spec("a", true, false), spec("b/c", true, false)];
    let mut files = ProcfsFiles::new(&name("read"), specs).unwrap();
    let mode = |p: &str| fs::metadata(p).unwrap().mode() & 0o777;
    let path = files.path().to_owned();
    assert_eq!(mode(&format!("{path}/b/c")), 0o400);
    let (all, _) = served(&mut files, 0, |path, _| {
        let read = |name: &str| fs::read_to_string(format!("{path}/{name}")).unwrap();
        [read("a"), read("a"), read("b/c"), read("a")]
    });
    assert_eq!(all, ["a 1", "a 2", "b/c 3", "a 4"]);
    // Many readers at once, some of which leave at once.
    let (all, _) = served(&mut files, 0, |path, _| {
        let one = move |n: usize| {
            let path = format!("{path}/a");
            thread::spawn(move || {
                let mut file = fs::File::open(path).unwrap();
                let mut text = Vec::new();
                if n % 16 != 3 {
                    file.read_to_end(&mut text).unwrap();
                }
                (n, String::from_utf8(text).unwrap())
            })
        };
        let mut all = Vec::new();
        for round in 0..50 {
            let readers = if round < 10 { 16 } else { 1 + round % 8 };
            let threads: Vec<_> = (0..readers).map(&one).collect();
            all.extend(threads.into_iter().map(|t| t.join().unwrap()));
        }
        all
    });
    let mut last = 0;
    for (n, text) in &all {
        if n % 16 == 3 {
            continue;
        }
        let number = text
            .strip_prefix("a ")
            .and_then(|n| n.parse::<usize>().ok());
        assert!(number.is_some_and(|n| n > 0), "{text:?}");
        last = last.max(number.unwrap_or(0));
    }
    assert!(last <= all.len());
    drop(files);
    assert!(!Path::new(&path).exists());
}

#[test]
fn writers_are_heard_line_by_line() {
    let mut files = ProcfsFiles::new(&name("write"), vec![spec("w", false, true)]).unwrap();
    let ((), written) = served(&mut files, 5, |path, heard| {
        let write = |text: &str| {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .open(format!("{path}/w"))
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write("one\n");
        write("two\nthree\n");
        write("rest");
        // Else it is one line with the next text.
        wait_until("the rest", || heard.load(Ordering::SeqCst) == 4);
        write("more\n");
    });
    let want = ["w:one\\n", "w:two\\n", "w:three\\n", "w:rest", "w:more\\n"];
    assert_eq!(texts(&written), want);
}

#[test]
fn a_reader_does_not_get_what_was_written() {
    let mut files = ProcfsFiles::new(&name("both"), vec![spec("x", true, true)]).unwrap();
    let (read, written) = served(&mut files, 5, |path, _| {
        let path = format!("{path}/x");
        let mut read = Vec::new();
        for n in 0..5 {
            let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all(format!("{n}\n").as_bytes()).unwrap();
            drop(file);
            read.push(fs::read_to_string(&path).unwrap());
        }
        read
    });
    assert_eq!(read, ["x 1", "x 2", "x 3", "x 4", "x 5"]);
    assert_eq!(
        texts(&written),
        ["x:0\\n", "x:1\\n", "x:2\\n", "x:3\\n", "x:4\\n"]
    );
}

#[test]
fn directories_are_the_users_own() {
    let files = ProcfsFiles::new(&name("dir"), vec![spec("a/b", true, false)]).unwrap();
    let path = files.path().to_owned();
    let why = |r: Result<ProcfsFiles, (String, io::Error)>| r.err().unwrap().1.to_string();
    assert!(why(ProcfsFiles::new(&name("dir"), Vec::new())).contains("another session"));
    // The remains of a killed session are taken over.
    fs::write(format!("{path}/foreign"), "x").unwrap();
    drop(files);
    assert!(Path::new(&path).exists());
    assert!(why(ProcfsFiles::new(&name("dir"), Vec::new())).contains("`foreign`"));
    fs::remove_file(format!("{path}/foreign")).unwrap();
    fs::create_dir(format!("{path}/a")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        format!("{path}/a/old"),
        Mode::RUSR | Mode::WUSR,
    )
    .unwrap();
    let files = ProcfsFiles::new(&name("dir"), vec![spec("new", true, false)]).unwrap();
    assert!(!Path::new(&format!("{path}/a")).exists());
    let new = fs::metadata(format!("{path}/new")).unwrap();
    assert!(new.is_file() && new.len() == 0);
    drop(files);
    assert!(!Path::new(&path).exists());
    let users = Path::new(&path).parent().unwrap();
    fs::create_dir_all(users).unwrap();
    symlink("/usr", &path).unwrap();
    assert!(ProcfsFiles::new(&name("dir"), Vec::new()).is_err());
    fs::remove_file(&path).unwrap();
    for bad in ["", "../x", ".x", "a/b"] {
        assert!(ProcfsFiles::new(bad, Vec::new()).is_err(), "{bad}");
    }
}

#[test]
fn lines_are_split() {
    let (mut line, mut texts) = (b"a".to_vec(), Vec::new());
    split(&mut line, b"b\nc\n\nd", &mut texts);
    assert_eq!(texts, [&b"ab\n"[..], b"c\n", b"\n"]);
    assert_eq!(line, b"d");
    texts.clear();
    split(&mut line, &[b'x'; 2 * MOST_LINE], &mut texts);
    assert_eq!(texts.len(), 2);
    assert_eq!(line.len(), 1);
}

/// The text for a reader that opens a read-write file before or after the replacement of the pipe,
/// without a notification to the session.
fn unannounced(before: bool) -> String {
    let of = if before { "before" } else { "after" };
    let mut files = ProcfsFiles::new(&name(of), vec![spec("v", true, true)]).unwrap();
    let open = |path: &str, access| {
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | access;
        rustix::fs::open(path, flags, Mode::empty()).unwrap()
    };
    let location = open(&format!("{}/v", files.path()), OFlags::PATH);
    files.forget(&files.pipes[0]);
    let mut answer = |_| b"text".to_vec();
    let early = before.then(|| open(&own_path(&location), OFlags::RDONLY));
    files.let_writers_in(&mut answer).unwrap();
    let reader = early.unwrap_or_else(|| open(&own_path(&location), OFlags::RDONLY));
    files.let_writers_in(&mut answer).unwrap();
    let mut text = [0; 8];
    let n = rustix::io::read(&reader, &mut text).unwrap();
    String::from_utf8_lossy(&text[..n]).into_owned()
}

#[test]
fn readers_who_come_as_the_name_goes_are_served() {
    assert_eq!(unannounced(true), "text");
    assert_eq!(unannounced(false), "text");
}
