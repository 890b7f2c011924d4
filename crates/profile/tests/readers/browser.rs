//! Headless Chromium, and speedscope in it.

use std::path::Path;
use std::process::{Command, Output};

use super::tools::tools;

/// Names of Chromium's program.
const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "chromium-browser"];

/// Runs it on a page, with a folder for its output.
pub(crate) fn browser(folder: &Path, options: &[&str], page: &str) -> Output {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &&str| std::env::split_paths(&paths).any(|p| p.join(name).exists());
    let name = BROWSERS.into_iter().find(there);
    let mut command = Command::new(name.expect("chromium (`make deps` installs it)"));
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ]);
    command.arg("--force-color-profile=srgb");
    if !options.iter().any(|o| o.starts_with("--window-size")) {
        command.arg("--window-size=1280,2400");
    }
    // A profile and caches of its own.
    command.arg(format!("--user-data-dir={}", folder.join("user").display()));
    command.env("HOME", folder);
    let out = command.args(options).arg(page).output();
    let out = out.expect("it starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    out
}

/// The content of speedscope's table for a file: each name with its own time as text.
pub(crate) fn speedscope(name: &str, content: &[u8]) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    // Like its command line: a script that passes the file.
    let script = folder.path().join("file.js");
    let text = std::str::from_utf8(content).expect("text");
    let text = serde_json::to_string(text).expect("JSON");
    let hand_over = format!(
        "speedscope.loadFileFromBase64({name:?}, btoa(unescape(encodeURIComponent({text}))))"
    );
    std::fs::write(&script, hand_over).expect("a file");
    let page = format!(
        "file://{}/index.html#view=sandwich&localProfilePath={}",
        tools().speedscope.display(),
        script.display()
    );
    let options = [
        "--allow-file-access-from-files",
        // Pages get that much virtual time, whatever the load of the machine.
        "--virtual-time-budget=20000",
        "--dump-dom",
    ];
    let mut shown = Vec::new();
    // On a busy machine the table may not have been drawn when the page was read.
    for _ in 0..5 {
        let out = browser(folder.path(), &options, &page);
        let page = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(page.contains(" - speedscope</title>"), "not read: {page}");
        let rows = page.split("<tr").skip(2);
        let cells = rows.map(|row| row.split("<td").skip(2).map(inner).collect::<Vec<_>>());
        let row = |cells: Vec<String>| match &cells[..] {
            [own, name] => Some((name.clone(), own.clone())),
            _ => None,
        };
        shown = cells.filter_map(row).collect();
        if shown.len() > 1 {
            break;
        }
    }
    shown
}

/// The text of a cell, without the elements after it.
fn inner(cell: &str) -> String {
    let text = cell.replace("</span>", "");
    let parts = text.split('<').map(|part| part.rsplit('>').next());
    let mut parts = parts.flatten().filter(|t| !t.is_empty());
    let text = parts.next().unwrap_or_default();
    text.split(" (").next().unwrap_or_default().to_owned()
}
