//! `staprun` and `stapio`, which in SystemTap load and run the module that a script became.
//!
//! spile makes no modules. What these programs do with a module that runs, `-A` and `-d`, is done with
//! a session in the background (`stap -F -m NAME SCRIPT`). Otherwise the error is the command line of
//! `stap` that does the same. Each option is a row of [`OPTIONS`].

use std::ffi::OsString;
use std::fmt::Write;

use crate::attach;
use crate::cli::LONGEST_MODULE_NAME;
use crate::report::{Failure, fail, print_stdout};
use crate::stap;

/// What an option does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// This option of `stap` does it, with the same argument.
    As(&'static str),
    /// Nothing, because of this.
    NoEffect(&'static str),
    /// It is refused, with this way out.
    Refused(&'static str),
    /// The output of a session in the background is shown.
    Attach,
    /// A session in the background ends.
    Delete,
    Help,
    Version,
}

/// The argument of an option: its name in the help, and the values that it can have.
struct Argument {
    name: &'static str,
    wanted: &'static str,
    fits: fn(&str) -> bool,
}

impl Argument {
    /// Whether it is the rest of the word or none.
    fn is_attached(&self) -> bool {
        self.name.starts_with('[')
    }
}

/// An option of `staprun` and `stapio`.
struct StaprunOption {
    letter: char,
    argument: Option<Argument>,
    meaning: Meaning,
}

const fn flag(letter: char, meaning: Meaning) -> StaprunOption {
    StaprunOption {
        letter,
        argument: None,
        meaning,
    }
}

const fn with(letter: char, argument: Argument, meaning: Meaning) -> StaprunOption {
    StaprunOption {
        letter,
        argument: Some(argument),
        meaning,
    }
}

/// Any text.
const fn text(name: &'static str) -> Argument {
    Argument {
        name,
        wanted: "a text",
        fits: |text| !text.is_empty(),
    }
}

/// A number that is not 0.
const fn number(name: &'static str) -> Argument {
    Argument {
        name,
        wanted: "a number above 0",
        fits: |text| text.parse::<u32>().is_ok_and(|n| n > 0),
    }
}

const MEGABYTES: Argument = Argument {
    name: "MB",
    wanted: "1 to 4095 megabytes",
    fits: |text| text.parse().is_ok_and(|n: u32| (1..=4095).contains(&n)),
};

const SERIES: Argument = Argument {
    name: "SIZE[,N]",
    wanted: "megabytes of a file, and perhaps the number of files",
    fits: |text| text.split(',').count() <= 2 && text.split(',').all(|n| n.parse::<u32>().is_ok()),
};

const COLOUR: Argument = Argument {
    name: "WHEN",
    wanted: "auto, always or never",
    fits: |text| ["auto", "always", "never"].contains(&text),
};

#[rustfmt::skip]
const OPTIONS: &[StaprunOption] = {
    use Meaning::*;
    &[
        flag('v', As("-v")),
        flag('V', Version),
        flag('h', Help),
        flag('w', As("-w")),
        with('u', text("[PATH]"), NoEffect("the kernel has uprobes built in")),
        with('c', text("CMD"), As("-c")),
        with('x', number("PID"), As("-x")),
        with('t', number("PID"), As("-x")),
        with('N', number("PID"), As("--target-namespaces")),
        with('o', text("FILE"), As("-o")),
        with('b', MEGABYTES, As("-s")),
        flag('L', As("-F")),
        flag('A', Attach),
        with('C', COLOUR, As("--color=")),
        with('M', number("SECS"), Refused(stap::NO_MONITOR)),
        flag('d', Delete),
        flag('R', NoEffect("each session has a name of its own")),
        with('r', text("N:URI"), Refused(stap::NO_REMOTE)),
        flag('D', As("-F")),
        with('S', SERIES, As("-S")),
        with('T', number("MS"), NoEffect("output is read as soon as it is there")),
        with('F', text("FD"), NoEffect("there is no relay directory")),
        flag('i', NoEffect("`probe input.char` reads the standard input of the session")),
    ]
};

/// Options that exclude each other.
const EXCLUSIVE: &[(char, char)] = &[
    ('A', 'L'),
    ('A', 'b'),
    ('A', 'c'),
    ('A', 'x'),
    ('c', 'x'),
    ('D', 'L'),
    ('D', 'd'),
    ('D', 'c'),
];

/// Options that need another one.
const NEEDS: &[(char, char)] = &[('D', 'o'), ('S', 'o')];

/// A command line: options with their arguments, and the words behind them.
#[derive(Default)]
struct Line {
    options: Vec<(&'static StaprunOption, Option<String>)>,
    /// The module, then its `NAME=VALUE`.
    words: Vec<String>,
}

/// Reads a command line as `getopt` does: options can follow the module.
fn read(args: impl IntoIterator<Item = String>) -> Result<Line, String> {
    let mut args = args.into_iter();
    let mut line = Line::default();
    while let Some(word) = args.next() {
        if word == "--" {
            line.words.extend(args);
            break;
        }
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            line.words.push(word);
            continue;
        };
        for (offset, letter) in letters.char_indices() {
            let option = OPTIONS
                .iter()
                .find(|o| o.letter == letter)
                .ok_or_else(|| format!("there is no option -{letter}; -h lists all"))?;
            let Some(argument) = &option.argument else {
                line.options.push((option, None));
                continue;
            };
            let rest = &letters[offset + letter.len_utf8()..];
            let value = match rest {
                "" if argument.is_attached() => None,
                "" => args.next().or_else(|| Some(String::new())),
                rest => Some(rest.to_owned()),
            };
            if let Some(value) = value.as_deref().filter(|v| !(argument.fits)(v)) {
                let wanted = argument.wanted;
                return Err(format!("-{letter} {value}: expected {wanted}"));
            }
            line.options.push((option, value));
            break;
        }
    }
    line.check()?;
    Ok(line)
}

impl Line {
    fn has(&self, letter: char) -> bool {
        self.options.iter().any(|(o, _)| o.letter == letter)
    }

    fn check(&self) -> Result<(), String> {
        for (one, other) in EXCLUSIVE {
            if self.has(*one) && self.has(*other) {
                return Err(format!("-{one} and -{other} exclude each other"));
            }
        }
        for (option, needed) in NEEDS {
            if self.has(*option) && !self.has(*needed) {
                return Err(format!("-{option} needs -{needed} FILE"));
            }
        }
        for (option, _) in &self.options {
            if let Meaning::Refused(why) = option.meaning {
                return Err(format!("-{} is not here: {why}", option.letter));
            }
        }
        Ok(())
    }

    /// The name of the module, without folder and suffix.
    fn module(&self) -> Result<&str, String> {
        let path = self.words.first().ok_or("name a module; -h shows how")?;
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = file.split('.').next().unwrap_or(file);
        match name.len() > LONGEST_MODULE_NAME {
            true => Err(format!(
                "the name of module {name} has {} characters; {LONGEST_MODULE_NAME} are the most",
                name.len()
            )),
            false => Ok(name),
        }
    }

    /// The command line of `stap` that does the same.
    fn command(&self) -> String {
        let mut words = vec!["stap".to_owned()];
        for (option, value) in &self.options {
            let Meaning::As(name) = option.meaning else {
                continue;
            };
            let value = value.as_deref().map(quoted);
            words.push(match value {
                Some(value) if name.ends_with('=') => format!("{name}{value}"),
                Some(value) => format!("{name} {value}"),
                None => name.to_owned(),
            });
        }
        let globals = self.words.iter().skip(1);
        words.extend(globals.map(|w| format!("-G {}", quoted(w))));
        words.push("SCRIPT".to_owned());
        words.join(" ")
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |q| q.into_owned())
}

/// The text of `-h`.
fn help(program: &str) -> String {
    let mut out = format!(
        "Usage: {program} [OPTIONS] MODULE [NAME=VALUE]...\n\n\
         spile makes no kernel module: `stap SCRIPT` compiles and runs a script. MODULE is a session in the\n\
         background (`stap -F -m MODULE SCRIPT`), by the name of -m or its PID.\n\n"
    );
    for option in OPTIONS {
        let name = match &option.argument {
            Some(a) if a.is_attached() => format!("-{}{}", option.letter, a.name),
            Some(a) => format!("-{} {}", option.letter, a.name),
            None => format!("-{}", option.letter),
        };
        let meaning = match option.meaning {
            Meaning::As(name) => format!("`stap {name}` does it"),
            Meaning::NoEffect(why) => format!("no effect: {why}"),
            Meaning::Refused(why) => format!("not here: {why}"),
            Meaning::Attach => "show the output of the session MODULE".to_owned(),
            Meaning::Delete => "end the session MODULE, and show the rest of its output".to_owned(),
            Meaning::Help => "print this text".to_owned(),
            Meaning::Version => "print the version".to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {name:12} {meaning}");
    }
    out
}

/// Runs `staprun` or `stapio`; the result is the exit status.
pub(crate) fn run(program: &str, args: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let failed = |why: String| fail(format_args!("{program}: {why}"));
    let args = args.map(|a| a.to_string_lossy().into_owned());
    let line = read(args).map_err(failed)?;
    let is = |meaning| line.options.iter().any(|(o, _)| o.meaning == meaning);
    if is(Meaning::Help) {
        print_stdout(help(program))?;
        return Ok(0);
    }
    if is(Meaning::Version) {
        print_stdout(stap::version())?;
        return Ok(0);
    }
    let name = line.module().map_err(failed)?;
    let ends = is(Meaning::Delete);
    if ends || is(Meaning::Attach) {
        return attach::run(Some(attach::session_called(name)?), ends);
    }
    Err(failed(format!(
        "{name}: spile makes no kernel module to load; `{}` runs the script",
        line.command()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Result<Line, String> {
        read(words.split(' ').map(str::to_owned))
    }

    #[test]
    fn each_option_is_read_and_named_in_the_help() {
        let help = help("staprun");
        for option in OPTIONS {
            let values = ["1", "a:b", "always"];
            let fitting = |a: &Argument| values.into_iter().find(|v| (a.fits)(v));
            let value = option.argument.as_ref().and_then(fitting);
            let words = match &option.argument {
                Some(a) if !a.is_attached() => format!("-{} {} m", option.letter, value.unwrap()),
                _ => format!("-{} m", option.letter),
            };
            let refused = matches!(option.meaning, Meaning::Refused(_));
            let needs = NEEDS.iter().any(|(o, _)| *o == option.letter);
            match line(&words) {
                Ok(line) => {
                    assert_eq!(line.words, ["m"], "{words}");
                    assert!(!refused && !needs, "{words}");
                }
                Err(why) => assert!(refused || needs, "{words}: {why}"),
            }
            assert!(help.contains(&format!("\n  -{}", option.letter)), "{words}");
        }
    }

    #[test]
    fn what_staprun_refuses_is_refused() {
        let name = "n".repeat(61);
        let long = line(&format!("/x/{name}.ko")).unwrap();
        assert!(long.module().unwrap_err().contains("61 characters"));
        assert!(line(&name[1..]).unwrap().module().is_ok());
        assert!(line("-v").unwrap().module().is_err());
        for (one, other) in EXCLUSIVE {
            let word = |letter: &char| match letter {
                'b' | 'x' => format!("-{letter} 1"),
                'c' => "-c ls".to_owned(),
                other => format!("-{other}"),
            };
            let words = format!("{} {} -o f m", word(one), word(other));
            assert!(line(&words).is_err(), "{words}");
        }
        for words in [
            "-b 0 m", "-S 1,1 m", "-D m", "-Z m", "-c", "-N x m", "-C x m",
        ] {
            assert!(line(words).is_err(), "{words}");
        }
    }

    #[test]
    fn a_command_line_of_stap_does_the_same() {
        let told = |words| line(words).unwrap().command();
        assert_eq!(
            told("-vR -x7 -b 2 -C never /tmp/a.ko n=1"),
            "stap -v -x 7 -s 2 --color=never -G 'n=1' SCRIPT"
        );
        assert_eq!(told("m -D -o f -u"), "stap -F -o f SCRIPT");
        let line = read(["-c", "ls -l", "m"].map(str::to_owned)).unwrap();
        assert_eq!(line.command(), "stap -c 'ls -l' SCRIPT");
    }
}
