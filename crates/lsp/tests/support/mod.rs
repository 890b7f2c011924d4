//! A client on an in-memory connection, and a server with our tapset and a fake machine.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use lsp_server::{Connection, Message, Notification, Request, Response};
use serde_json::{Value, json};
use spile_lsp::server::serve;
use spile_lsp::workspace::{TapsetLocations, Workspace};
use spile_sema::analyse::AnalysisOptions;
use spile_sema::library::Library;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

/// The document of most tests.
pub(crate) const URI: &str = "file:///x.stp";

/// The scripts and macros of a folder of the repository.
pub(crate) fn folder(name: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("a folder")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "stp" || e == "stpm"))
        .collect();
    paths.sort();
    paths
}

struct Nowhere;

impl TapsetLocations for Nowhere {
    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(Path::new("/cache").join(name))
    }
    fn provide(&self, name: &str, text: &str) -> Option<PathBuf> {
        assert!(!text.is_empty());
        self.path(name)
    }
}

fn workspace() -> Workspace {
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let (mut library, mut macros) = (Library::new(), MacroLibrary::new());
    macros.define(&mut sources, "MAXSTRINGLEN", "512", &mut diags);
    macros.define(&mut sources, "MAXBACKTRACE", "20", &mut diags);
    for only_macros in [true, false] {
        for path in folder("tapset") {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let text = std::fs::read(&path).expect("readable");
            if name.ends_with(".stpm") != only_macros {
                continue;
            }
            let file = sources.add_built_in(format!("tapset/{name}"), text);
            if only_macros {
                macros.extend(parse_macros(&mut sources, file, &env, &mut diags));
            } else {
                let tree = parse_file(&mut sources, file, &env, &macros, &mut diags);
                library.add(file, tree, false);
            }
        }
    }
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
    Workspace {
        sources,
        library,
        macros,
        env: Box::new(|args| PreprocEnv::new("6.12.0", "x86_64").with_args(args)),
        facts: Box::new(spile_machine::FakeMachine::new()),
        tables: Box::new(|_| None),
        options: AnalysisOptions::default(),
        locations: Box::new(Nowhere),
        blind: None,
    }
}

/// The client's end.
pub(crate) struct Client {
    connection: Connection,
    server: Option<JoinHandle<Result<bool, String>>>,
    count: i32,
    /// Notifications received while waiting for answers.
    pub heard: Vec<Notification>,
}

impl Client {
    /// Starts a server and initialises it; `first` is sent before the server reads anything.
    pub(crate) fn start(encodings: &[&str], first: Vec<Message>) -> (Client, Value) {
        let (ours, theirs) = Connection::memory();
        let hello = json!({"capabilities": {"general": {"positionEncodings": encodings}}});
        let mut client = Client {
            connection: ours,
            server: None,
            count: 0,
            heard: Vec::new(),
        };
        client.send(Request::new(0.into(), "initialize".into(), hello));
        client.notify("initialized", json!({}));
        first.into_iter().for_each(|m| client.send(m));
        client.server = Some(std::thread::spawn(move || serve(&workspace(), &theirs)));
        let answer = client.answer(0).result.expect("a result");
        (client, answer)
    }

    /// A server with one open document.
    pub(crate) fn with(text: &str) -> Client {
        let (mut client, _) = Client::start(&["utf-16"], Vec::new());
        client.open(URI, text);
        client
    }

    pub(crate) fn send(&self, message: impl Into<Message>) {
        self.connection
            .sender
            .send(message.into())
            .expect("the server is there");
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(Notification::new(method.into(), params));
    }

    pub(crate) fn open(&mut self, uri: &str, text: &str) {
        let item = json!({"uri": uri, "languageId": "systemtap", "version": 1, "text": text});
        self.notify("textDocument/didOpen", json!({"textDocument": item}));
    }

    /// A change of the whole text (`range` null) or a part.
    pub(crate) fn change(&mut self, version: i32, range: Value, text: &str) {
        let mut change = json!({"text": text});
        if !range.is_null() {
            change["range"] = range;
        }
        let document = json!({"uri": URI, "version": version});
        self.notify(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": [change]}),
        );
    }

    pub(crate) fn receive(&mut self) -> Message {
        self.connection
            .receiver
            .recv_timeout(Duration::from_secs(120))
            .expect("an answer")
    }

    pub(crate) fn answer(&mut self, id: i32) -> Response {
        loop {
            match self.receive() {
                Message::Response(r) if r.id == id.into() => return r,
                Message::Notification(n) => self.heard.push(n),
                _ => {}
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Response {
        self.count += 1;
        self.send(Request::new(self.count.into(), method.into(), params));
        self.answer(self.count)
    }

    /// The result of a request that must succeed.
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let r = self.ask(method, params);
        assert!(r.error.is_none(), "{method}: {:?}", r.error);
        r.result.expect("a result")
    }

    /// The next diagnostics: version, and each as `line:from-to code message`.
    pub(crate) fn diagnostics(&mut self) -> (Value, Vec<String>) {
        loop {
            let n = match self.heard.is_empty() {
                false => self.heard.remove(0),
                true => match self.receive() {
                    Message::Notification(n) => n,
                    _ => continue,
                },
            };
            if n.method != "textDocument/publishDiagnostics" {
                continue;
            }
            let list = n.params["diagnostics"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|d| {
                    let r = &d["range"];
                    let (s, e) = (&r["start"], &r["end"]);
                    let code = d["code"].as_str().expect("a code");
                    let message = d["message"].as_str().expect("a message");
                    format!(
                        "{}:{}-{} {code} {message}",
                        s["line"], s["character"], e["character"]
                    )
                });
            return (n.params["version"].clone(), list.collect());
        }
    }

    /// Ends the server as the protocol requires.
    pub(crate) fn stop(mut self) {
        assert!(self.ask("shutdown", Value::Null).error.is_none());
        assert!(self.ask("textDocument/hover", at(0, 0)).error.is_some());
        self.notify("exit", Value::Null);
        let ended = self
            .server
            .take()
            .expect("a server")
            .join()
            .expect("no panic");
        assert_eq!(ended, Ok(true));
    }
}

/// The parameters of a request at a position of the document.
pub(crate) fn at(line: usize, character: usize) -> Value {
    json!({"textDocument": {"uri": URI}, "position": {"line": line, "character": character}})
}

/// A text with `§` for the cursor: the text without it, and the position (in UTF-16).
pub(crate) fn cursor(marked: &str) -> (String, Value) {
    let (before, after) = marked.split_once('§').expect("a cursor");
    let line = before.matches('\n').count();
    let last = before.rsplit('\n').next().unwrap_or("");
    (
        format!("{before}{after}"),
        at(line, last.encode_utf16().count()),
    )
}
