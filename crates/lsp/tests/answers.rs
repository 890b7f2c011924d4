//! The server's answers on a fake machine.

mod support;

use lsp_server::{ErrorCode, Message, Notification, Request};
use serde_json::{Value, json};
use support::{Client, URI, at, cursor};

/// The labels of the proposals at a marked location.
fn complete(marked: &str) -> Vec<String> {
    let (text, location) = cursor(marked);
    let mut client = Client::with(&text);
    let items = client.result("textDocument/completion", location);
    client.stop();
    let label = |i: &Value| i["label"].as_str().expect("a label").to_owned();
    items
        .as_array()
        .map_or(Vec::new(), |all| all.iter().map(label).collect())
}

#[track_caller]
fn proposes(marked: &str, wanted: &[&str], unwanted: &[&str]) {
    let all = complete(marked);
    for w in wanted {
        assert!(all.iter().any(|l| l == w), "{marked}: no {w} in {all:?}");
    }
    for w in unwanted {
        assert!(all.iter().all(|l| l != w), "{marked}: {w} in {all:?}");
    }
}

#[test]
fn completion_proposes_probe_points() {
    proposes(
        "probe §",
        &["begin", "syscall", "kernel", "timer", "scheduler"],
        &["openat", "foreach"],
    );
    proposes("probe sys§ {}", &["syscall", "syscall_any"], &["begin"]);
    proposes(
        "probe syscall.§",
        &["open", "fstatat"],
        &["read.return", "begin"],
    );
    proposes("probe syscall.open.§", &["return"], &["open"]);
    proposes(
        "probe begin, timer.§\nprobe end {}",
        &["s(N)", "ms(N)", "profile"],
        &["begin"],
    );
    proposes("probe syscall.{open, wr§", &["write"], &["open"]);
    proposes("probe scheduler.§ { }", &["ctxswitch", "wakeup"], &[]);
    proposes(
        "probe kernel.trace(\"sched_p§",
        &["sched_process_exit"],
        &["signal_generate"],
    );
    proposes(
        "probe kernel.trace(\"sched:§\") { x }",
        &["sched_switch", "signal_generate"],
        &[],
    );
}

#[test]
fn completion_proposes_names_in_scope() {
    let script = "global counts\nprivate function mine(a) { return a }\n\
        probe kernel.trace(\"sched_switch\") { local = 1; ";
    proposes(
        &format!("{script} § }}"),
        &["counts", "mine", "local", "execname", "printf", "if"],
        &["probe"],
    );
    proposes(
        &format!("{script} pri§"),
        &["printf", "print"],
        &["execname"],
    );
    proposes(
        &format!("{script} $§"),
        &["$prev", "$next", "$$vars"],
        &["execname"],
    );
    proposes(
        &format!("{script} $prev->§ }}"),
        &["pid", "comm"],
        &["execname", "$prev"],
    );
    proposes(&format!("{script} $prev->p§"), &["pid"], &["comm"]);
    proposes(
        &format!("{script} @§"),
        &["@count", "@cast", "@choose_defined"],
        &["counts"],
    );
    proposes(
        &format!("{script} @cast(x, \"task_struct\")->§"),
        &["pid"],
        &[],
    );
    proposes(&format!("{script} @task(x)->§"), &["pid"], &[]);
    proposes("probe syscall.open { § }", &["filename", "argstr"], &[]);
    proposes("probe syscall.open { $§ }", &["$filename", "$flags"], &[]);
    proposes(
        "§",
        &["probe", "global", "function", "private"],
        &["execname"],
    );
    proposes("probe begin { x }\n§", &["probe"], &["execname"]);
    proposes(
        "@define twice(a) %( @a %)\nprobe begin { @tw§ }",
        &["@twice"],
        &[],
    );
    assert!(complete("probe begin { # sys§").is_empty());
    assert!(complete("probe begin { /* sys§ */ }").is_empty());
    assert!(complete("probe begin { println(\"ex§\") }").is_empty());
}

fn hover(marked: &str) -> String {
    let (text, location) = cursor(marked);
    let mut client = Client::with(&text);
    let found = client.result("textDocument/hover", location);
    client.stop();
    found["contents"]["value"].as_str().unwrap_or("").to_owned()
}

#[test]
fn hovers_show_signatures_and_documentation() {
    let has = |marked: &str, wanted: &[&str]| {
        let text = hover(marked);
        wanted
            .iter()
            .for_each(|w| assert!(text.contains(w), "{marked}: no {w:?} in {text:?}"));
    };
    has(
        "probe begin { exec§name() }",
        &[
            "function execname:string ()",
            "Name of the current task",
            "tapset/context.stp",
        ],
    );
    has(
        "# Twice a.\nfunction tw§ice(a) { return a * 2 }\nprobe begin { twice(1) }",
        &["twice:long (a:long)", "Twice a."],
    );
    has(
        "# How many.\nglobal n\nprobe begin { §n[execname()] <<< 1 }",
        &["global n: statistic [string]", "How many."],
    );
    has("probe begin { x§ = \"a\"; println(x) }", &["x: string"]);
    has(
        "probe kernel.trace(\"sched_switch\") { println($pr§ev->pid) }",
        &["$prev: struct task_struct *"],
    );
    has(
        "probe kernel.trace(\"sched_switch\") { println($prev->p§id) }",
        &["pid: int", "struct task_struct"],
    );
    has(
        "probe syscall.open { println(file§name) }",
        &["filename: string"],
    );
    has(
        "probe sysc§all.open { }",
        &[
            "syscall.NAME",
            "entry to a system call",
            "`filename`: string",
            "`$flags`: int",
        ],
    );
    has(
        "probe scheduler.cpu§_on { }",
        &[
            "scheduler.cpu_on = __cpu_on_function!",
            "begins to run on a processor",
            "`idle`: long",
        ],
    );
    has(
        "probe begin { println(@co§unt(x)) }",
        &["the number of values of a statistic"],
    );
    has(
        "probe begin { println(@choose_de§fined($x, 1)) }",
        &["@define choose_defined(a, b)"],
    );
    has(
        "probe begin { print§f(\"\") }",
        &["prints values by a format"],
    );
    has(
        "probe begin { fore§ach (k in a) next }",
        &["iterates over an array"],
    );
    has("probe timer.s($§1) { }", &["argument 1"]);
    has(
        "probe kernel.trace(\"sched_switch\") { println($pr§ev-> }",
        &["$prev: struct task_struct *"],
    );
    assert_eq!(hover("probe begin { }§"), "");
    assert_eq!(hover("probe begin { unkno§wn_thing() }"), "");
}

#[test]
fn definitions_lead_to_their_locations() {
    let definition = |marked: &str| -> Vec<String> {
        let (text, location) = cursor(marked);
        let mut client = Client::with(&text);
        let found = client.result("textDocument/definition", location);
        client.stop();
        let each = found.as_array().cloned().unwrap_or_default();
        let show = |l: &Value| {
            let s = &l["range"]["start"];
            format!(
                "{}:{}:{}",
                l["uri"].as_str().expect("a URI"),
                s["line"],
                s["character"]
            )
        };
        each.iter().map(show).collect()
    };
    assert_eq!(
        definition("global n\nprobe begin { n§++ }"),
        ["file:///x.stp:0:7"]
    );
    assert_eq!(
        definition("function f() { }\nprobe begin { §f() }"),
        ["file:///x.stp:0:9"]
    );
    assert_eq!(
        definition("probe begin { x = 1; println(x§) }"),
        ["file:///x.stp:0:14"]
    );
    assert_eq!(
        definition("@define m %( 1 %)\nprobe begin { println(@§m) }"),
        ["file:///x.stp:0:0"]
    );
    assert_eq!(
        definition("probe a = begin { }\nprobe §a { }"),
        ["file:///x.stp:0:0"]
    );
    let tapset = definition("probe begin { pid§() }");
    assert!(
        tapset.len() == 1 && tapset[0].starts_with("file:///cache/tapset/context.stp:"),
        "{tapset:?}"
    );
    let alias = definition("probe scheduler.wake§up { }");
    assert!(
        alias.len() == 1 && alias[0].starts_with("file:///cache/tapset/scheduler.stp:"),
        "{alias:?}"
    );
    let library = definition("probe begin { println(@ta§sk(0)) }");
    assert!(
        library.len() == 1 && library[0].starts_with("file:///cache/tapset/context.stpm:"),
        "{library:?}"
    );
    assert!(definition("probe begin { 1§ }").is_empty());
}

#[test]
fn diagnostics_are_those_of_the_command_line() {
    // Columns count 16-bit units: the smiley has two.
    let mut client = Client::with("probe begin { println(\"\u{1f600}\", nothing()) }\n");
    let (version, list) = client.diagnostics();
    assert_eq!(version, 1);
    assert_eq!(list.len(), 1, "{list:?}");
    assert!(
        list[0].starts_with("0:28-35 E0501") && list[0].contains("nothing"),
        "{list:?}"
    );
    client.change(2, Value::Null, "probe syscal.open { }\n");
    let (version, list) = client.diagnostics();
    assert_eq!(version, 2);
    assert!(
        list[0].starts_with("0:6-17 E0301")
            && list[0].contains("help: did you mean `syscall.open`?"),
        "{list:?}"
    );
    // Arguments are not known yet; unused names give warnings.
    client.change(
        3,
        Value::Null,
        "function f() { }\nprobe timer.s($1) { println(@2) }\n",
    );
    let (_, list) = client.diagnostics();
    assert!(
        list.len() == 1 && list[0].contains("is never called"),
        "{list:?}"
    );
    client.change(
        4,
        json!({"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}),
        "",
    );
    assert_eq!(client.diagnostics(), (4.into(), vec![]));
    client.notify(
        "textDocument/didClose",
        json!({"textDocument": {"uri": URI}}),
    );
    assert_eq!(client.diagnostics().1.len(), 0);
    client.stop();
}

#[test]
fn diagnostics_of_other_documents_are_separate() {
    let mut client = Client::with("probe begin { exit() }");
    assert!(client.diagnostics().1.is_empty());
    client.open("file:///y.stpm", "probe begin { exit() }");
    let (_, list) = client.diagnostics();
    assert!(list[0].contains("E0211"), "{list:?}");
    // A file of the tapset is not a script of its own: private intrinsics are allowed there.
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tapset/task.stp"
    ));
    client.open("file:///cache/tapset/task.stp", &text.expect("readable"));
    assert!(client.diagnostics().1.is_empty());
    client.stop();
}

#[test]
fn outline_and_formatting_follow_the_document() {
    let mut client =
        Client::with("global a,b\n@define m %( 1 %)\nfunction f(){}\nprobe begin,end{ f() }\n");
    let document = json!({"textDocument": {"uri": URI}});
    let symbols = client.result("textDocument/documentSymbol", document.clone());
    let names: Vec<_> = symbols
        .as_array()
        .expect("a list")
        .iter()
        .map(|s| s["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b", "@m", "f", "begin, end"]);
    let params =
        json!({"textDocument": {"uri": URI}, "options": {"tabSize": 8, "insertSpaces": true}});
    let edits = client.result("textDocument/formatting", params.clone());
    let want = "global a, b\n@define m %( 1 %)\nfunction f() {}\nprobe begin, end { f() }\n";
    assert_eq!(edits[0]["newText"], want);
    assert_eq!(edits[0]["range"]["end"], json!({"line": 4, "character": 0}));
    client.change(2, Value::Null, want);
    assert_eq!(
        client.result("textDocument/formatting", params.clone()),
        json!([])
    );
    client.change(3, Value::Null, "probe begin {");
    assert_eq!(
        client.result("textDocument/formatting", params),
        Value::Null
    );
    client.stop();
}

#[test]
fn bad_and_canceled_requests_are_answered_by_the_protocol() {
    // A request that is canceled before its turn is not answered.
    let canceled = Request::new(100.into(), "textDocument/hover".into(), at(0, 0));
    let cancel = Notification::new("$/cancelRequest".into(), json!({"id": 100}));
    let first = vec![Message::from(canceled), Message::from(cancel)];
    let (mut client, hello) = Client::start(&["utf-16", "utf-8"], first);
    assert_eq!(hello["capabilities"]["positionEncoding"], "utf-8");
    let refused = client.answer(100).error.expect("an error");
    assert_eq!(refused.code, ErrorCode::RequestCanceled as i32);
    // This document was never opened.
    for method in ["hover", "completion", "definition"] {
        assert_eq!(
            client.result(&format!("textDocument/{method}"), at(3, 3)),
            Value::Null
        );
    }
    let unknown = client
        .ask("textDocument/unheard", json!({}))
        .error
        .expect("an error");
    assert_eq!(unknown.code, ErrorCode::MethodNotFound as i32);
    let wrong = client
        .ask("textDocument/hover", json!({"x": 1}))
        .error
        .expect("an error");
    assert_eq!(wrong.code, ErrorCode::InvalidParams as i32);
    client.notify("textDocument/didOpen", json!({"x": 1}));
    client.notify("$/unheard", json!(null));
    // Columns count bytes now.
    client.open(URI, "# \u{e9}\nprobe begin { s = \"\u{e9}\"; nothing() }");
    let (_, list) = client.diagnostics();
    assert!(list.iter().any(|l| l.starts_with("1:24-31 ")), "{list:?}");
    client.stop();
}
