//! `spile lsp` as an editor starts it: the whole protocol over the program's pipes, with the
//! built-in tapset. It needs no privilege.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Editor {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    count: i64,
    /// Received notifications.
    heard: Vec<Value>,
}

impl Editor {
    fn start(cache: &Path) -> Editor {
        let mut server = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["lsp", "--stdio"])
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spile starts");
        let to = server.stdin.take().expect("a pipe");
        let from = BufReader::new(server.stdout.take().expect("a pipe"));
        Editor {
            server,
            to,
            from,
            count: 0,
            heard: Vec::new(),
        }
    }

    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        let body = message.to_string();
        write!(self.to, "Content-Length: {}\r\n\r\n{body}", body.len()).expect("the server reads");
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).expect("the server writes");
            assert!(!line.is_empty(), "the server ended");
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", n)) => length = n.parse().expect("a number"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.from.read_exact(&mut body).expect("a message");
        serde_json::from_slice(&body).expect("JSON")
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"method": method, "params": params}));
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.count += 1;
        let id = self.count;
        self.send(json!({"id": id, "method": method, "params": params}));
        loop {
            let message = self.receive();
            if message["id"] == id {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
            self.heard.push(message);
        }
    }

    /// The diagnostics of a version of a document.
    fn diagnostics(&mut self, version: i64) -> Vec<Value> {
        loop {
            let message = match self.heard.is_empty() {
                true => self.receive(),
                false => self.heard.remove(0),
            };
            let params = &message["params"];
            if message["method"] == "textDocument/publishDiagnostics"
                && params["version"] == version
            {
                return params["diagnostics"].as_array().expect("a list").clone();
            }
        }
    }
}

const URI: &str = "file:///nowhere/a%20script.stp";

fn at(line: u32, character: u32) -> Value {
    json!({"textDocument": {"uri": URI}, "position": {"line": line, "character": character}})
}

#[test]
fn the_server_answers_an_editor() {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        spile_testing::skip("only the syntax is checked without the kernel's types");
    }
    let cache = tempfile::tempdir().expect("a folder");
    let mut editor = Editor::start(cache.path());
    let hello = editor.ask(
        "initialize",
        json!({"processId": null, "rootUri": null, "capabilities": {}}),
    );
    assert_eq!(hello["serverInfo"]["name"], "spile");
    assert_eq!(hello["capabilities"]["positionEncoding"], "utf-16");
    editor.notify("initialized", json!({}));
    let text = "probe begin {\n  println(pidd())\n}\nprobe timer.s(1){ exit() }\n";
    let item = json!({"uri": URI, "languageId": "systemtap", "version": 1, "text": text});
    editor.notify("textDocument/didOpen", json!({"textDocument": item}));
    if let [wrong] = &editor.diagnostics(1)[..] {
        assert_eq!(
            (&wrong["code"], &wrong["source"]),
            (&json!("E0501"), &json!("spile"))
        );
        assert_eq!(wrong["range"]["start"], json!({"line": 1, "character": 10}));
    } else {
        panic!("one diagnostic");
    }
    let range = json!({"start": {"line": 1, "character": 13}, "end": {"line": 1, "character": 14}});
    let change = json!({"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"range": range, "text": ""}]});
    editor.notify("textDocument/didChange", change);
    assert!(editor.diagnostics(2).is_empty());

    let items = editor.ask("textDocument/completion", at(1, 12));
    let labels: Vec<_> = items
        .as_array()
        .expect("a list")
        .iter()
        .map(|i| i["label"].clone())
        .collect();
    assert!(
        labels.contains(&json!("pid")) && !labels.contains(&json!("tid")),
        "{labels:?}"
    );
    let hover = editor.ask("textDocument/hover", at(1, 11));
    let value = hover["contents"]["value"].as_str().expect("text");
    assert!(value.contains("pid:long ()"), "{value}");
    assert_eq!(
        std::fs::read_dir(cache.path()).expect("readable").count(),
        0,
        "nothing is written yet"
    );

    let locations = editor.ask("textDocument/definition", at(1, 11));
    let file = cache.path().join("spile/tapset/context.stp");
    assert_eq!(locations[0]["uri"], format!("file://{}", file.display()));
    let written = std::fs::read_to_string(&file).expect("it was written");
    let line = locations[0]["range"]["start"]["line"]
        .as_u64()
        .expect("a line") as usize;
    assert!(
        written
            .lines()
            .nth(line)
            .is_some_and(|l| l.starts_with("function pid:long()"))
    );

    let symbols = editor.ask(
        "textDocument/documentSymbol",
        json!({"textDocument": {"uri": URI}}),
    );
    assert_eq!(symbols[1]["name"], "timer.s(1)");
    let options = json!({"tabSize": 2, "insertSpaces": true});
    let edits = editor.ask(
        "textDocument/formatting",
        json!({"textDocument": {"uri": URI}, "options": options}),
    );
    let new = "probe begin {\n  println(pid())\n}\nprobe timer.s(1) { exit() }\n";
    assert_eq!(edits[0]["newText"], new);

    assert_eq!(editor.ask("shutdown", Value::Null), Value::Null);
    editor.notify("exit", Value::Null);
    assert!(editor.server.wait().expect("it ends").success());
}

#[test]
fn the_server_ends_when_the_editor_goes_away() {
    let cache = tempfile::tempdir().expect("a folder");
    let mut editor = Editor::start(cache.path());
    editor.ask("initialize", json!({"capabilities": {}}));
    let Editor { mut server, to, .. } = editor;
    drop(to);
    assert_eq!(server.wait().expect("it ends").code(), Some(1));
}
