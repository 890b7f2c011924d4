//! What needs `-g` needs it in whatever way its text comes to the compiler: each privileged operation
//! through each way in. Only analysis runs, which needs no privilege.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// An operation that only some text may use.
struct Privilege {
    /// The probe point at which it has a meaning.
    point: &'static str,
    statement: &'static str,
    /// The error without the privilege.
    refusal: &'static str,
    /// `-g` grants it.
    by_guru: bool,
    /// It has a meaning in a function too.
    anywhere: bool,
}

const fn privilege(statement: &'static str, refusal: &'static str, by_guru: bool) -> Privilege {
    Privilege {
        point: "syscall.getppid",
        statement,
        refusal,
        by_guru,
        anywhere: true,
    }
}

const PRIVILEGES: &[Privilege] = &[
    privilege("raise(9)", "E0531", true),
    privilege("set_user_long(4096, 1)", "E0531", true),
    privilege("println(@kderef(8, 4096))", "E0124", true),
    privilege("println(%{ 1 %})", "E0124", false),
    privilege("println(__session_pid())", "E0501", false),
    privilege("println(__table(\"errno\", 1))", "E0501", false),
    privilege("println(task_ns_pid(4096))", "E0531", true),
    Privilege {
        point: "netfilter.ipv4.pre_routing",
        statement: "$verdict = 0",
        refusal: "E0531",
        by_guru: true,
        anywhere: false,
    },
];

/// A way in which text comes to the compiler. In its texts, `POINT` and `STATEMENT` are those of the
/// privilege, and `DIR` is a folder of files.
#[derive(Default)]
struct WayIn {
    name: &'static str,
    args: &'static [&'static str],
    /// Files of the folder, with their texts.
    files: &'static [(&'static str, &'static str)],
    env: &'static [(&'static str, &'static str)],
    stdin: &'static str,
    /// The statement is the body of a function.
    in_function: bool,
}

const fn way(
    name: &'static str,
    args: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
) -> WayIn {
    WayIn {
        name,
        args,
        files,
        env: &[],
        stdin: "",
        in_function: false,
    }
}

const fn function(
    name: &'static str,
    args: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
) -> WayIn {
    WayIn {
        in_function: true,
        ..way(name, args, files)
    }
}

const PROBE: &str = "probe POINT { STATEMENT }";
const STATEMENT: &str = "@define evil %( STATEMENT %)";
const WHOLE: &str = "@define evil %( probe POINT { STATEMENT } %)";
const USES: &str = "probe POINT { @evil }";
const HARMLESS: &str = "probe oneshot { println(1) }";

const WAYS: &[WayIn] = &[
    way("-e", &["-e", PROBE], &[]),
    way("a file", &["DIR/script.stp"], &[("script.stp", PROBE)]),
    way("-E", &["-e", HARMLESS, "-E", PROBE], &[]),
    way("$1", &["-e", "probe POINT { $1 }", "STATEMENT"], &[]),
    way("$1 as a probe", &["-e", "$1", PROBE], &[]),
    WayIn {
        stdin: PROBE,
        ..way("standard input", &["-"], &[])
    },
    WayIn {
        stdin: "probe POINT { STATEMENT }\nrun",
        ..way("-i", &["-i"], &[])
    },
    WayIn {
        stdin: "load DIR/script.stp\nrun",
        ..way("load of -i", &["-i"], &[("script.stp", PROBE)])
    },
    way(
        "a macro",
        &["-e", "@define evil %( STATEMENT %) probe POINT { @evil }"],
        &[],
    ),
    way(
        "a macro of -I",
        &["-I", "DIR", "-e", USES],
        &[("m.stpm", STATEMENT)],
    ),
    way(
        "a probe from a macro of -I",
        &["-I", "DIR", "-e", "@evil"],
        &[("m.stpm", WHOLE)],
    ),
    way(
        "a macro in a macro of -I",
        &["-I", "DIR", "-e", "probe POINT { @outer(@evil) }"],
        &[
            ("m.stpm", "@define outer(x) %( @x %)"),
            ("n.stpm", STATEMENT),
        ],
    ),
    function(
        "the argument of a built-in macro",
        &[
            "-e",
            "function f() { STATEMENT return 0 } probe POINT { println(@choose_defined(f(), 0)) }",
        ],
        &[],
    ),
    function(
        "a function",
        &["-e", "function evil() { STATEMENT } probe POINT { evil() }"],
        &[],
    ),
    function(
        "a function of -I",
        &["-I", "DIR", "-e", "probe POINT { evil() }"],
        &[("f.stp", "function evil() { STATEMENT }")],
    ),
    function(
        "a function of -I with a macro of -I",
        &["-I", "DIR", "-e", "probe POINT { evil() }"],
        &[
            ("f.stp", "function evil() { @evil }"),
            ("m.stpm", STATEMENT),
        ],
    ),
    way(
        "a probe of -I",
        &["-I", "DIR", "-e", "probe POINT { println(pulls) }"],
        &[("p.stp", "global pulls = 1 probe POINT { STATEMENT }")],
    ),
    way(
        "an alias",
        &[
            "-e",
            "probe evil = POINT { STATEMENT } probe evil { println(1) }",
        ],
        &[],
    ),
    way(
        "an alias of -I",
        &["-I", "DIR", "-e", "probe evil { println(1) }"],
        &[("a.stp", "probe evil = POINT { STATEMENT }")],
    ),
    WayIn {
        env: &[("SYSTEMTAP_TAPSET", "DIR")],
        ..way(
            "a macro of $SYSTEMTAP_TAPSET",
            &["-e", USES],
            &[("m.stpm", STATEMENT)],
        )
    },
    WayIn {
        env: &[("SYSTEMTAP_TAPSET", "DIR")],
        ..way(
            "an alias of $SYSTEMTAP_TAPSET",
            &["-e", "probe evil { println(1) }"],
            &[("a.stp", "probe evil = POINT { STATEMENT }")],
        )
    },
    WayIn {
        env: &[("SYSTEMTAP_DIR", "DIR")],
        ..way(
            "the file of options",
            &["-e", USES],
            &[("rc", "-I DIR/tapset"), ("tapset/m.stpm", STATEMENT)],
        )
    },
    WayIn {
        env: &[("HOME", "DIR")],
        ..way(
            "the file of options at home",
            &["-e", HARMLESS],
            &[(".systemtap/rc", "-E 'probe POINT { STATEMENT }'")],
        )
    },
    way(
        "a macro of the library's name",
        &["-I", "DIR", "-e", "probe POINT { @task(1) }"],
        &[("m.stpm", "@define task(p) %( STATEMENT %)")],
    ),
    way(
        "an alias of the library's name",
        &[
            "-e",
            "probe syscall.open = POINT { STATEMENT } probe syscall.open { println(1) }",
        ],
        &[],
    ),
    function(
        "a function of the library's name",
        &[
            "-e",
            "function pid() { STATEMENT return 0 } probe POINT { println(pid()) }",
        ],
        &[],
    ),
    function(
        "a function of the library's name in -I",
        &["-I", "DIR", "-e", "probe POINT { println(pid()) }"],
        &[("f.stp", "function pid() { STATEMENT return 0 }")],
    ),
];

/// The messages of a run, with its output.
fn run(way: &WayIn, privilege: &Privilege, guru: bool) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a name");
    let filled = |text: &str| {
        let text = text.replace("DIR", dir).replace("POINT", privilege.point);
        text.replace("STATEMENT", privilege.statement)
    };
    for (name, text) in way.files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
        std::fs::write(path, filled(text)).expect("a file");
    }
    let pass: &[&str] = if way.args == ["-i"] { &[] } else { &["-p2"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
    command
        .args(guru.then_some("-g"))
        .args(pass)
        .args(way.args.iter().map(|a| filled(a)))
        .env("HOME", "/nonexistent")
        .envs(way.env.iter().map(|(name, text)| (name, filled(text))))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("spile starts");
    let stdin = filled(way.stdin).replace("\nrun", "\nrun -p2\n");
    let to = child.stdin.take();
    to.expect("a pipe").write_all(stdin.as_bytes()).ok();
    let done = child.wait_with_output().expect("spile ends");
    let said = [done.stdout, done.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn every_privilege_is_checked_in_every_way_in() {
    let mut wrong = Vec::new();
    for way in WAYS {
        for privilege in PRIVILEGES {
            if way.in_function && !privilege.anywhere {
                continue;
            }
            let refused = |said: &str| said.contains(&format!("error[{}]", privilege.refusal));
            for guru in [false, true] {
                let said = run(way, privilege, guru);
                let allowed = guru && privilege.by_guru;
                // Where it is allowed, the text is analysed; internal names never are, and no C runs.
                let good = match allowed {
                    true => !said.contains("error["),
                    false if guru => said.contains("error["),
                    false => refused(&said),
                };
                if !good {
                    let (what, g) = (privilege.statement, if guru { " -g" } else { "" });
                    wrong.push(format!("{what} by {}{g}:\n{said}", way.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The library keeps the meaning of its own names, so no text of a user runs with its privileges.
#[test]
fn names_of_the_library_keep_their_meaning_inside_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let macros = "@define task(p) %( nonsense( %)\n@define MAXSTRINGLEN %( nonsense( %)";
    std::fs::write(folder.path().join("m.stpm"), macros).expect("a file");
    let script = "@define offsetof(a, b) %( nonsense( %) function cpu() { return nonsense }
        probe oneshot { println(task_parent(1), task_cpu(1), kernel_string(1), @choose_defined(pid(), 0)) }";
    let done = Command::new(env!("CARGO_BIN_EXE_spile"))
        .arg("-I")
        .arg(folder.path())
        .args(["-p2", "-e", script])
        .output()
        .expect("spile starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}
