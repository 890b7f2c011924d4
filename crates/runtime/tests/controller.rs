//! Sessions without a kernel part: order of handlers, output, errors, timers, metrics, commands.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use spile_ir::fmt::{Conv, ConvKind, Count, Format, Piece};
use spile_ir::storage::Storage;
use spile_ir::{
    BinOp, Block, BlockId, Body, Event, FormatId, Global, GlobalId, GlobalKind, Handler, Inst,
    Intrinsic, Program, Reg, Site, SiteId, Stream, Term, Ty, Val,
};
use spile_runtime::io::output;
use spile_runtime::shared::ring_record::FieldValue;
use spile_runtime::{Outcome, Session, SessionOptions, TargetProcess};

/// `%d\n`
const NUMBER: FormatId = FormatId(0);

fn number_format() -> Format {
    let conv = Conv {
        kind: ConvKind::Dec,
        left: false,
        plus: false,
        space: false,
        zero: false,
        alt: false,
        width: Count::None,
        precision: Count::None,
    };
    Format {
        pieces: vec![Piece::Conv(conv), Piece::Lit(b"\n"[..].into())],
    }
}

fn print(n: Val) -> Inst {
    Inst::Print {
        stream: Stream::Out,
        fmt: NUMBER,
        args: vec![n],
    }
}

fn exit() -> Inst {
    Inst::Intr {
        dst: None,
        f: Intrinsic::Exit,
        args: vec![],
    }
}

fn divide_by_zero() -> Inst {
    Inst::Bin {
        dst: Reg(0),
        op: BinOp::Div,
        a: Val::Imm(1),
        b: Val::Imm(0),
    }
}

fn count() -> Inst {
    Inst::GAdd {
        g: GlobalId(0),
        val: Val::Imm(1),
        old: None,
    }
}

fn print_count() -> Vec<Inst> {
    vec![
        Inst::GLoad {
            dst: Reg(0),
            g: GlobalId(0),
        },
        print(Val::Reg(Reg(0))),
    ]
}

/// A handler whose code is one block.
fn handler(event: Event, insts: Vec<Inst>) -> Handler {
    let insts = insts.into_iter().map(|i| (i, SiteId(1))).collect();
    Handler {
        point: format!("{event:?}").into(),
        points: 1,
        event,
        body: Body {
            regs: vec![Ty::Long, Ty::Long],
            blocks: vec![Block {
                insts,
                term: Term::Ret(None),
                catch: None,
            }],
            iters: 0,
        },
        site: SiteId(1),
    }
}

fn program(handlers: Vec<Handler>) -> Program {
    Program {
        globals: vec![Global {
            name: "n".into(),
            kind: GlobalKind::Scalar(Ty::Long),
            init: None,
            storage: Storage::Controller,
            display: true,
            site: SiteId(0),
        }],
        handlers,
        formats: vec![number_format()],
        sites: vec![Site::default(), Site::at("keyword at x.stp:1:1")],
        ..Program::default()
    }
}

fn options() -> SessionOptions {
    SessionOptions {
        output: output::OutputTarget::Memory,
        quiet: true,
        ..SessionOptions::default()
    }
}

/// Runs to the end; returns the outcome and the output.
fn run(handlers: Vec<Handler>, options: SessionOptions) -> (Outcome, String) {
    let mut session = Session::new(program(handlers), None, options).unwrap();
    let outcome = session.run().unwrap();
    (outcome, String::from_utf8(session.take_output()).unwrap())
}

fn timer(ms: u64, insts: Vec<Inst>) -> Handler {
    handler(
        Event::Timer {
            period_ns: ms * 1_000_000,
            randomize_ns: 0,
        },
        insts,
    )
}

#[test]
fn begin_timers_end_in_order() {
    let (outcome, text) = run(
        vec![
            handler(Event::End(1), vec![print(Val::Imm(5))]),
            handler(Event::End(0), print_count()),
            handler(Event::Begin(1), vec![print(Val::Imm(2))]),
            handler(Event::Begin(0), vec![print(Val::Imm(1))]),
            handler(Event::Begin(-1), vec![print(Val::Imm(0))]),
            timer(2, vec![count()]),
            timer(25, vec![print(Val::Imm(3)), exit()]),
            handler(Event::Error(0), vec![print(Val::Imm(99))]),
            handler(Event::Never, vec![print(Val::Imm(99))]),
        ],
        options(),
    );
    let lines: Vec<i64> = text.lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!((&lines[..4], lines[5]), (&[0, 1, 2, 3][..], 5));
    // On a busy machine the short timer may have only its first hit.
    assert!((1..=13).contains(&lines[4]), "{lines:?}");
    assert_eq!(outcome.exit_code, 0);
    assert!(outcome.losses.is_clean());
}

#[test]
fn prints_are_rows_of_typed_values() {
    let mut named = number_format();
    named.pieces.insert(0, Piece::Lit(b"row\t"[..].into()));
    let print_row = |n| Inst::Print {
        stream: Stream::Out,
        fmt: FormatId(1),
        args: vec![Val::Imm(n)],
    };
    let mut program = program(vec![
        handler(Event::Begin(0), vec![print_row(-7), print(Val::Imm(8))]),
        timer(2, vec![count()]),
        handler(Event::End(0), vec![print_row(i64::MIN)]),
    ]);
    program.formats.push(named);
    let rows = Rc::new(RefCell::new(Vec::new()));
    let taken = Rc::clone(&rows);
    let options = SessionOptions {
        output: output::OutputTarget::Rows(Box::new(move |row, _| {
            let numbers: Vec<i64> = row
                .values
                .iter()
                .map(|value| match value {
                    FieldValue::Long(n) => *n,
                    FieldValue::Str(text) => panic!("{text:?}"),
                })
                .collect();
            taken.borrow_mut().push((row.name.to_owned(), numbers));
            // The second row is enough.
            match row.name {
                "" => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })),
        ..options()
    };
    let mut session = Session::new(program, None, options).unwrap();
    session.run().unwrap();
    let expected = [("row".to_owned(), vec![-7]), (String::new(), vec![8])];
    assert_eq!(*rows.borrow(), expected);
}

#[test]
fn exit_in_begin_keeps_later_ones_from_running() {
    let armed = Rc::new(Cell::new(false));
    let flag = Rc::clone(&armed);
    let options = SessionOptions {
        armed: Some(Box::new(move |_| flag.set(true))),
        ..options()
    };
    let (outcome, text) = run(
        vec![
            handler(
                Event::Begin(0),
                vec![print(Val::Imm(1)), exit(), print(Val::Imm(2))],
            ),
            handler(Event::Begin(1), vec![print(Val::Imm(9))]),
            handler(Event::End(0), vec![print(Val::Imm(3))]),
        ],
        options,
    );
    assert_eq!((outcome.exit_code, &*text), (0, "1\n2\n3\n"));
    assert!(!armed.get());
}

#[test]
fn errors_run_error_probes() {
    let (outcome, text) = run(
        vec![
            handler(Event::Begin(0), vec![print(Val::Imm(1)), divide_by_zero()]),
            handler(Event::End(0), vec![print(Val::Imm(2))]),
            handler(Event::Error(0), vec![print(Val::Imm(3))]),
        ],
        options(),
    );
    assert_eq!(
        (outcome.exit_code, outcome.losses.errors, &*text),
        (1, 1, "1\n3\n")
    );
}

#[test]
fn unread_globals_print_themselves() {
    let options = SessionOptions {
        display_globals: true,
        ..options()
    };
    let handlers = vec![handler(Event::Begin(0), vec![count(), exit()])];
    assert_eq!(run(handlers, options).1, "n=1\n");
}

#[test]
fn a_time_limit_is_a_success() {
    let since = Instant::now();
    let options = SessionOptions {
        timeout: Some(Duration::from_millis(30)),
        ..options()
    };
    let (outcome, text) = run(
        vec![handler(Event::End(0), vec![print(Val::Imm(1))])],
        options,
    );
    assert_eq!((outcome.exit_code, &*text), (0, "1\n"));
    assert!(since.elapsed() >= Duration::from_millis(30));
}

#[test]
fn commands_end_the_session_with_their_status() {
    for (command, code) in [
        ("true", 0),
        ("sh -c 'exit 7'", 1),
        ("kill -9 $$", 1),
        ("/no/such", 1),
    ] {
        let options = SessionOptions {
            target: TargetProcess::Command(command.into()),
            ..options()
        };
        let handlers = vec![handler(
            Event::End(0),
            vec![
                Inst::Intr {
                    dst: Some(Reg(0)),
                    f: Intrinsic::Target,
                    args: vec![],
                },
                print(Val::Reg(Reg(0))),
            ],
        )];
        let (outcome, text) = run(handlers, options);
        assert_eq!(outcome.exit_code, code, "{command}");
        assert!(text.trim().parse::<i64>().unwrap() > 1);
    }
}

#[test]
fn missing_processes_are_refused() {
    let options = SessionOptions {
        target: TargetProcess::Pid(i32::MAX as u32),
        ..options()
    };
    let error = Session::new(program(vec![]), None, options).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("cannot follow process 2147483647"),
        "{error}"
    );
}

#[test]
fn metrics_are_served() {
    let options = SessionOptions {
        prometheus: Some("127.0.0.1:0".into()),
        timeout: Some(Duration::from_secs(120)),
        ..options()
    };
    let mut handlers = vec![handler(Event::Begin(0), vec![])];
    let mut metric = print_count();
    metric.insert(0, count());
    handlers.push(handler(Event::Prometheus, metric));
    // The second scrape ends the session.
    let mut last = handler(Event::Prometheus, print_count());
    let entry = last.body.blocks.remove(0);
    let two = Inst::Bin {
        dst: Reg(1),
        op: BinOp::Eq,
        a: Val::Reg(Reg(0)),
        b: Val::Imm(2),
    };
    let first = Block {
        insts: entry.insts.into_iter().chain([(two, SiteId(1))]).collect(),
        term: Term::Branch {
            cond: Val::Reg(Reg(1)),
            then: BlockId(1),
            els: BlockId(2),
        },
        catch: None,
    };
    let ends = |insts: Vec<Inst>| Block {
        insts: insts.into_iter().map(|i| (i, SiteId(1))).collect(),
        term: Term::Ret(None),
        catch: None,
    };
    last.body.blocks = vec![first, ends(vec![exit()]), ends(vec![])];
    handlers.push(last);
    let mut session = Session::new(program(handlers), None, options).unwrap();
    let addr = session.prometheus_addr().unwrap();
    let scraper = std::thread::spawn(move || {
        let scrape = |request: &str| {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        // A silent client costs the others nothing.
        let idle = TcpStream::connect(addr).unwrap();
        let first = scrape("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let wrong = scrape("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
        let second = scrape("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        drop(idle);
        [first, wrong, second]
    });
    session.run().unwrap();
    let text = String::from_utf8(session.take_output()).unwrap();
    drop(session);
    let [first, wrong, second] = scraper.join().unwrap();
    assert!(first.contains("text/plain; version=0.0.4"), "{first}");
    assert!(first.ends_with("\r\n\r\n1\n1\n"), "{first}");
    assert!(wrong.starts_with("HTTP/1.1 404"), "{wrong}");
    assert!(second.ends_with("\r\n\r\n2\n2\n"), "{second}");
    assert_eq!(text, "");
}

/// Signals this thread, in which the session takes signals as events.
fn signal_self(number: libc::c_int) -> Option<spile_runtime::OnArmed> {
    // SAFETY: the signal goes to this thread, which has it blocked while the session lives.
    Some(Box::new(move |_| unsafe {
        libc::pthread_kill(libc::pthread_self(), number);
    }))
}

#[test]
fn signals_end_the_session_and_run_end_probes() {
    // Under nohup it would rightly be no end.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let options = SessionOptions {
            armed: signal_self(number),
            ..options()
        };
        let (outcome, text) = run(
            vec![handler(Event::End(0), vec![print(Val::Imm(1))])],
            options,
        );
        assert_eq!((outcome.exit_code, &*text), (0, "1\n"));
    }
}

#[test]
fn files_get_the_output() {
    let path = std::env::temp_dir().join(format!("spile-output-{}", std::process::id()));
    let target = output::OutputTarget::File(path.to_string_lossy().into_owned(), None);
    let options = SessionOptions {
        output: target,
        ..options()
    };
    run(
        vec![handler(Event::Begin(0), vec![print(Val::Imm(7)), exit()])],
        options,
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "7\n");
    std::fs::remove_file(&path).unwrap();
    let nowhere = output::OutputTarget::File("/no/such/location".into(), None);
    let options = SessionOptions {
        output: nowhere,
        ..SessionOptions::default()
    };
    let error = Session::new(program(vec![]), None, options).err().unwrap();
    assert!(error.to_string().contains("/no/such/location"), "{error}");
}
