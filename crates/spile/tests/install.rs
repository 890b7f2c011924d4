//! The files that `make install` installs, which are those of the packages; and the libraries that
//! the executable is linked with.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::{Path, PathBuf};
use std::process::Command;

const SPILE: &str = env!("CARGO_BIN_EXE_spile");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of a command including errors; `None`, with a note, if it is not installed.
fn output(command: &mut Command) -> Option<(bool, String)> {
    match command.output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            Some((out.status.success(), text))
        }
        Err(e) => {
            let program = command.get_program().display();
            spile_testing::skip_variant(format_args!("{program}: {e}"));
            None
        }
    }
}

/// Files below a folder, by their relative path.
fn files(tree: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let path = path.strip_prefix(tree).expect("below");
                    all.push(path.to_string_lossy().into_owned());
                }
            }
        }
    }
    all.sort();
    all
}

/// Sources of a package's files, as patterns of paths below the installed tree. Those from elsewhere
/// are named by their destination.
fn packed(manifest: &toml::Table, kind: &str) -> Vec<String> {
    let assets = &manifest["package"]["metadata"][kind]["assets"];
    let assets = assets.as_array().expect("a list");
    let sources = assets.iter().filter_map(|a| a["source"].as_str());
    let below = |s: &str| match s.split_once("target/packages/root/") {
        Some((_, path)) => path.to_owned(),
        None => format!("usr/share/doc/spile/{}", s.trim_start_matches("../")),
    };
    sources.map(below).collect()
}

/// Whether a path is one that a pattern stands for: `*` is any part of a file's name.
fn is_match(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, end)) => path
            .strip_prefix(start)
            .and_then(|rest| rest.strip_suffix(end))
            .is_some_and(|middle| !middle.contains('/')),
    }
}

#[test]
fn packages_have_what_is_installed() {
    let folder = tempfile::tempdir().expect("a folder");
    let install = Command::new("make")
        .current_dir(root())
        .args(["-s", "install", "PREFIX=/usr"])
        .arg(format!("SPILE={SPILE}"))
        .arg(format!("DESTDIR={}", folder.path().display()))
        .output();
    let install = install.unwrap_or_else(|e| spile_testing::skip(format_args!("make: {e}")));
    assert!(install.status.success(), "{install:?}");
    let installed = files(folder.path());
    assert!(
        installed.contains(&"usr/bin/spile".to_owned()),
        "{installed:?}"
    );

    let manifest = std::fs::read_to_string(root().join("crates/spile/Cargo.toml")).expect("text");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    for kind in ["deb", "generate-rpm"] {
        let packed = packed(&manifest, kind);
        for path in &installed {
            let times = packed.iter().filter(|p| is_match(p, path)).count();
            assert_eq!(times, 1, "{kind}: {path} in {packed:?}");
        }
        for pattern in &packed {
            let used = installed.iter().any(|path| is_match(pattern, path));
            assert!(used, "{kind}: {pattern} in {installed:?}");
        }
    }

    let usr = folder.path().join("usr");
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/spile"),
        ("zsh", "share/zsh/site-functions/_spile"),
        ("fish", "share/fish/vendor_completions.d/spile.fish"),
    ] {
        let file = usr.join(file);
        let text = std::fs::read_to_string(&file).expect("text");
        assert!(text.contains("syscount") && text.contains("suppress-handler-errors"));
        if let Some((ok, text)) = output(Command::new(shell).arg("-n").arg(&file)) {
            assert!(ok, "{shell}: {text}");
        }
    }
    // An instance of the unit, whose script and program need not exist for the check.
    let unit = usr.join("lib/systemd/system/spile@.service");
    let instance = folder.path().join("spile@metrics.service");
    let text = std::fs::read_to_string(&unit).expect("text");
    assert!(
        text.contains("ExecStart=/usr/bin/spile --prometheus"),
        "{text}"
    );
    std::fs::write(&instance, text.replace("/usr/bin/spile", SPILE)).expect("written");
    let mut verify = Command::new("systemd-analyze");
    if let Some((_, text)) = output(verify.args(["verify", "--man=no"]).arg(&instance)) {
        let about: Vec<&str> = text.lines().filter(|l| l.contains("spile@")).collect();
        assert!(about.is_empty(), "{text}");
    }
}

/// The executable needs only the C library and the libraries that gcc adds to each program.
#[test]
fn the_executable_needs_no_libraries() {
    let Some((ok, text)) = output(Command::new("readelf").args(["-dW", SPILE])) else {
        return;
    };
    assert!(ok, "{text}");
    let needed = text.lines().filter(|l| l.contains("(NEEDED)"));
    let strangers: Vec<&str> = needed
        .filter(|l| {
            let usual = ["[libc.so", "[libgcc_s.so", "[libm.so", "[ld-linux"];
            !usual.iter().any(|u| l.contains(u))
        })
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}
