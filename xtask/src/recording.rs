//! `cargo xtask recording`: runs the commands of the README's recording with the release build, as
//! root, and writes `docs/recording.svg`: one screen for each command in turn. The file contains no
//! script and no font, so that GitHub shows it. The output of the commands is genuine, cut at the
//! screen's edge.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use spile_cast::Cast;

/// The command typed on each screen, and the seconds for which the screen stays.
const SCREENS: [(&str, u32); 4] = [
    (
        "spile -e 'probe syscall.openat { if (pid() == target()) printf(\"%s: %s\\n\", execname(), argstr) }' -c 'cat /etc/hostname'",
        6,
    ),
    (
        "spile /usr/share/systemtap/examples/profiling/errno.stp -c 'load errors 1000' | head -8",
        6,
    ),
    (
        "spile profile --top 3 -- xz -T2 -0 -k -c target/release/spile >/dev/null",
        9,
    ),
    ("spile -e 'probe syscal.openat { println(name) }'", 6),
];
const COLUMNS: usize = 100;
const ROWS: usize = 28;
/// Width of a character in pixels.
const WIDTH: f64 = 8.4;
const HEIGHT: usize = 18;
const MARGIN: usize = 12;

/// Runs the commands and writes the file.
pub(crate) fn run() -> ExitCode {
    let mut screens = Vec::new();
    for (command, seconds) in SCREENS {
        let lines = match typed(command) {
            Ok(lines) => lines,
            Err(e) => {
                eprintln!("{command}: {e}");
                return ExitCode::FAILURE;
            }
        };
        screens.push((lines, seconds));
    }
    match std::fs::write("docs/recording.svg", svg(&screens)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("docs/recording.svg: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The lines of a screen: the command after its prompt, folded, and its output.
fn typed(command: &str) -> std::io::Result<Vec<String>> {
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new("sh")
        .args(["-c", &format!("{{ {command}; }} 2>&1")])
        .env("PATH", format!("target/release:{path}"))
        .env("LC_ALL", "C")
        .output()?;
    let prompt: Vec<char> = format!("# {command}").chars().collect();
    let mut lines: Vec<String> = prompt.chunks(COLUMNS).map(|l| l.iter().collect()).collect();
    let printed = String::from_utf8_lossy(&out.stdout).replace('\t', "        ");
    let cut = |line: &str| line.chars().take(COLUMNS).collect::<String>();
    lines.extend(printed.lines().map(cut));
    lines.truncate(ROWS);
    Ok(lines)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// All screens in turn, forever. A reader without animation shows the first.
fn svg(screens: &[(Vec<String>, u32)]) -> String {
    let (width, height) = (
        spile_cast::whole(COLUMNS as f64 * WIDTH).fit::<usize>() + 2 * MARGIN,
        ROWS * HEIGHT + 2 * MARGIN,
    );
    let total: u32 = screens.iter().map(|(_, seconds)| seconds).sum();
    let mut style = String::new();
    let mut body = String::new();
    let mut from = 0;
    for (i, (lines, seconds)) in screens.iter().enumerate() {
        let percent = |time: u32| f64::from(time) * 100.0 / f64::from(total);
        let (begin, end) = (percent(from), percent(from + seconds));
        let shown = i32::from(i == 0);
        let _ = writeln!(
            style,
            "@keyframes s{i} {{ 0%, {begin:.2}% {{ opacity: {shown} }} {:.2}%, {:.2}% {{ opacity: 1 }} \
             {end:.2}%, 100% {{ opacity: 0 }} }}\n#s{i} {{ opacity: {shown}; animation: s{i} {total}s infinite step-end }}",
            begin + 0.01,
            end - 0.01,
        );
        let _ = writeln!(body, "<g id=\"s{i}\">");
        for (row, line) in lines.iter().enumerate() {
            let class = if line.starts_with("# ") {
                " class=\"c\""
            } else {
                ""
            };
            let y = MARGIN + (row + 1) * HEIGHT - 4;
            let _ = writeln!(
                body,
                "<text x=\"{MARGIN}\" y=\"{y}\"{class} xml:space=\"preserve\">{}</text>",
                escaped(line)
            );
        }
        body.push_str("</g>\n");
        from += seconds;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <style>\ntext {{ font: 14px ui-monospace, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; fill: #d0d0d0 }}\n\
         .c {{ fill: #8ae234 }}\n{style}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1c1c1c\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_each_screen_has_its_time() {
        let screens = [
            (vec!["# a <b>".to_owned()], 3),
            (vec!["c & d".to_owned()], 1),
        ];
        let text = svg(&screens);
        assert!(
            text.contains("# a &lt;b&gt;") && text.contains("c &amp; d"),
            "{text}"
        );
        assert!(text.contains("@keyframes s1 { 0%, 75.00%"), "{text}");
    }
}
