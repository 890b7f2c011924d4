//! `-i`: a script is written, changed and run at a prompt.
//!
//! Text that is no command is collected line by line until it is whole, and is kept if it parses behind
//! the parts before it, which are not parsed again. The script runs in a process of its own, with the
//! options of this one, so that a session's end leaves the prompt as it was. It goes there in a file,
//! because an argument has at most 128 KB.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use spile_kernel::process;
use spile_plain::files;
use spile_syntax::ast::Span;
use spile_syntax::codes;

use crate::cli::Cli;
use crate::list;
use crate::passes::parse::Parts;
use crate::passes::script::read_limited;
use crate::report::{Failure, fail, print_stderr_raw, print_stdout};
use crate::stap;

const PROMPT: &str = "spile> ";
/// The prompt inside an unfinished text.
const MORE: &str = "  ...> ";

/// The first word of the command line of `run`; the file with the script follows.
const SCRIPT_FILE: &str = "--script-file";

/// Errors of a text that ends too early.
const UNCLOSED: &[&str] = &[
    codes::UNTERMINATED_COMMENT,
    codes::UNTERMINATED_EMBEDDED,
    codes::UNCLOSED,
];

/// A command of the prompt.
struct PromptCommand {
    /// Its name and its arguments.
    usage: &'static str,
    help: &'static str,
    /// What it does with its arguments; without, the prompt ends.
    act: Option<Action>,
}

type Action = fn(&mut Prompt, &str) -> Result<(), Failure>;

const fn row(usage: &'static str, help: &'static str, act: Action) -> PromptCommand {
    PromptCommand {
        usage,
        help,
        act: Some(act),
    }
}

const fn end(usage: &'static str, help: &'static str) -> PromptCommand {
    PromptCommand {
        usage,
        help,
        act: None,
    }
}

#[rustfmt::skip]
const COMMANDS: &[PromptCommand] = &[
    row("add TEXT", "adds a probe, function or global; so does the text alone", Prompt::add),
    row("list", "shows the script, with the number of each part", Prompt::list),
    row("delete N|all", "removes a part of the script, or all", Prompt::delete),
    row("edit", "opens the script in $VISUAL, $EDITOR or vi", Prompt::edit),
    row("load FILE", "adds the script of a file", Prompt::load),
    row("save FILE", "writes the script to a new file", Prompt::save),
    row("run [OPTION]...", "runs the script, with further options; Ctrl-C ends it", Prompt::start),
    row("help", "shows this", Prompt::help),
    end("quit", "ends; so does Ctrl-D"),
    end("exit", "ends"),
];

/// The script at a prompt.
struct Prompt {
    color: bool,
    input: DefaultEditor,
    /// The parts of the script, each of which parses with those before it.
    parts: Vec<String>,
    /// What the parts define.
    parsed: Parts,
    /// The file that the script was loaded from or saved to, which `save` overwrites.
    file: Option<PathBuf>,
}

/// Takes the file with the script of a prompt from a command line that [`Prompt::start`] made.
pub(crate) fn take_script(args: &mut Vec<OsString>) -> Option<PathBuf> {
    let handed = args.len() > 2 && args[1] == SCRIPT_FILE;
    let mut words = handed.then(|| args.drain(1..3))?;
    words.nth(1).map(PathBuf::from)
}

/// Reads and does commands until the end of the input; the result is the exit status.
pub(crate) fn run(cli: &Cli, color: bool) -> Result<u8, Failure> {
    let other = list::is_requested(cli) || cli.pass.is_some() || cli.background;
    if other || cli.script.is_some() || !cli.extra.is_empty() {
        return Err(fail(
            "-i: the script is written at the prompt, so -e, -E, -l, -L, -p and -F do not go with it",
        ));
    }
    let mut prompt = Prompt {
        color,
        input: DefaultEditor::new().map_err(fail)?,
        parts: Vec::new(),
        parsed: Parts::new(cli)?,
        file: None,
    };
    if std::io::stdin().is_terminal() {
        print_stdout("`help` shows the commands. Other text becomes part of the script.\n")?;
    }
    while let Some(line) = prompt.read(PROMPT)? {
        if prompt.line(&line).is_break() {
            break;
        }
    }
    Ok(0)
}

impl Prompt {
    /// A line of the input; `None` at its end.
    fn read(&mut self, prompt: &str) -> Result<Option<String>, Failure> {
        // Output of before comes before the prompt.
        let _ = std::io::stdout().flush();
        // A prompt is for a person; the library would write it to a plain terminal (TERM=dumb) in any case.
        let prompt = if std::io::stdin().is_terminal() {
            prompt
        } else {
            ""
        };
        match self.input.readline(prompt) {
            Ok(line) => {
                let _ = self.input.add_history_entry(&line);
                Ok(Some(line))
            }
            // Ctrl-C drops the line.
            Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
            Err(ReadlineError::Eof) => Ok(None),
            Err(e) => Err(fail(format_args!("standard input: {e}"))),
        }
    }

    /// Does what a line asks for; `Break` if that is the end.
    fn line(&mut self, line: &str) -> ControlFlow<()> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let named = |c: &&PromptCommand| c.usage.split(' ').next() == Some(word);
        let done = match COMMANDS.iter().find(named).map(|c| c.act) {
            _ if word.is_empty() => Ok(()),
            Some(None) => return ControlFlow::Break(()),
            Some(Some(act)) => act(self, rest.trim()),
            None => self.add(line),
        };
        if let Err(failure) = done {
            failure.print(self.color);
        }
        ControlFlow::Continue(())
    }

    /// Adds a text; reads further lines until it is whole.
    fn add(&mut self, text: &str) -> Result<(), Failure> {
        let mut text = text.to_owned();
        while let Err(wrong) = self.check(&text) {
            let more = match wrong.open {
                true => self.read(MORE)?,
                false => None,
            };
            // An empty line or the end of the input gives up.
            let Some(line) = more.filter(|line| !line.trim().is_empty()) else {
                print_stderr_raw(&wrong.errors);
                return Ok(());
            };
            text.push('\n');
            text.push_str(&line);
        }
        if !text.trim().is_empty() {
            self.parts.push(text);
        }
        Ok(())
    }

    /// Parses a text as the next part.
    fn check(&mut self, text: &str) -> Result<(), Unparsed> {
        let name = format!("<part {}>", self.parts.len() + 1);
        let (file, diags) = self.parsed.parse(&name, text);
        if !diags.has_errors() {
            return Ok(());
        }
        let errors = diags.render(&self.parsed.sources, self.color);
        let end = text.trim_end().len();
        // The text goes on where something is not closed, or the parser misses something at the end.
        let at_end = |span: Span| span.file == file && span.start as usize >= end;
        let open = diags.iter().any(|d| {
            let span = d.primary.as_ref().map(|l| l.span);
            UNCLOSED.contains(&d.code) || span.is_some_and(at_end)
        });
        Err(Unparsed { errors, open })
    }

    /// Parses all parts again, because one of them is gone. What is wrong without it is said by `run`.
    fn parse_again(&mut self) {
        self.parsed.clear();
        for part in &self.parts {
            self.parsed.parse("<part>", part);
        }
    }

    /// The script so far.
    fn script(&self) -> String {
        self.parts.iter().flat_map(|part| [part, "\n"]).collect()
    }

    fn list(&mut self, _: &str) -> Result<(), Failure> {
        let numbered = |(n, part): (usize, &String)| format!("{}: {part}\n", n + 1);
        print_stdout(
            self.parts
                .iter()
                .enumerate()
                .map(numbered)
                .collect::<String>(),
        )
    }

    fn delete(&mut self, part: &str) -> Result<(), Failure> {
        if part == "all" {
            self.parts.clear();
            self.parsed.clear();
            return Ok(());
        }
        let number = part.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        match number.filter(|n| *n < self.parts.len()) {
            Some(index) => {
                self.parts.remove(index);
                self.parse_again();
                Ok(())
            }
            None => Err(fail(format_args!(
                "delete {part}: give `all`, or a number that `list` shows"
            ))),
        }
    }

    fn load(&mut self, file: &str) -> Result<(), Failure> {
        let file = path(file, "load")?;
        let text = read_file(&file)?;
        if self.add_whole(text) {
            self.file = Some(file);
        }
        Ok(())
    }

    /// Keeps a whole text as a part; whether it parses.
    fn add_whole(&mut self, text: String) -> bool {
        match self.check(&text) {
            Ok(()) => {
                let text = text.trim_end();
                self.parts
                    .extend((!text.is_empty()).then(|| text.to_owned()));
                true
            }
            Err(wrong) => {
                print_stderr_raw(&wrong.errors);
                false
            }
        }
    }

    fn save(&mut self, file: &str) -> Result<(), Failure> {
        let file = path(file, "save")?;
        let failed = |e: std::io::Error| fail(format_args!("{}: {e}", file.display()));
        let mut to = match self.file.as_ref() == Some(&file) {
            true => files::create(&file),
            false => std::fs::File::create_new(&file),
        }
        .map_err(failed)?;
        to.write_all(self.script().as_bytes()).map_err(failed)?;
        self.file = Some(file);
        Ok(())
    }

    fn edit(&mut self, _: &str) -> Result<(), Failure> {
        let folder = tempfile::tempdir().map_err(fail)?;
        let file = folder.path().join("script.stp");
        std::fs::write(&file, self.script()).map_err(fail)?;
        let set = |name| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let editor = set("VISUAL").or_else(|| set("EDITOR"));
        let editor = editor.unwrap_or_else(|| "vi".to_owned());
        // The variable can hold options as well.
        let mut words = editor.split_whitespace();
        let status = Command::new(words.next().unwrap_or("vi"))
            .args(words)
            .arg(&file)
            .status()
            .map_err(|e| fail(format_args!("{editor}: {e}")))?;
        if !status.success() {
            return Err(fail(format_args!(
                "{editor} failed: {status}; the script is unchanged"
            )));
        }
        let text = read_file(&file)?;
        let before = std::mem::take(&mut self.parts);
        self.parsed.clear();
        if !self.add_whole(text) {
            self.parts = before;
            self.parse_again();
        }
        Ok(())
    }

    /// Runs the script in a process of its own.
    fn start(&mut self, options: &str) -> Result<(), Failure> {
        let more = shlex::split(options).ok_or_else(|| fail("run: an open quote"))?;
        let args = stap::rewrite(std::env::args_os())?.args;
        let name = args.first().cloned().unwrap_or_else(|| "spile".into());
        let mut script = tempfile::NamedTempFile::new().map_err(fail)?;
        script.write_all(self.script().as_bytes()).map_err(fail)?;
        let mut run = Command::new("/proc/self/exe");
        run.arg0(name).arg(SCRIPT_FILE).arg(script.path());
        run.args(more).args(args.into_iter().skip(1));
        // A pipe of commands is not the script's input.
        if !std::io::stdin().is_terminal() {
            run.stdin(Stdio::null());
        }
        let status = process::without_interrupts(|| run.status());
        status.map_err(|e| fail(format_args!("run: {e}")))?;
        Ok(())
    }

    fn help(&mut self, _: &str) -> Result<(), Failure> {
        let line = |c: &PromptCommand| format!("{:<18} {}\n", c.usage, c.help);
        print_stdout(COMMANDS.iter().map(line).collect::<String>())
    }
}

/// Why a text does not parse.
struct Unparsed {
    errors: String,
    /// It ends too early.
    open: bool,
}

fn path(text: &str, command: &str) -> Result<PathBuf, Failure> {
    match text {
        "" => Err(fail(format_args!("{command}: give the name of a file"))),
        _ => Ok(PathBuf::from(OsString::from(text))),
    }
}

fn read_file(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let file = files::open(path).map_err(|e| fail(format_args!("{name}: {e}")))?;
    let text = read_limited(file, &name)?;
    String::from_utf8(text).map_err(|_| fail(format_args!("{name}: not UTF-8")))
}
