//! Every dependency has a licence that is compatible with this project's.

use std::process::Command;

/// Licences that may be combined with MIT or Apache-2.0 in a binary. libbpf is "LGPL-2.1-only OR
/// BSD-2-Clause": the second is chosen.
const GOOD: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
    "CC0-1.0",
];

/// Whether one of the alternatives of a licence expression is entirely acceptable.
fn allowed(expression: &str) -> bool {
    let text = expression.replace('/', " OR ").replace(['(', ')'], "");
    text.split(" OR ")
        .any(|all| all.split(" AND ").all(|one| GOOD.contains(&one.trim())))
        || text
            .split(" AND ")
            .all(|all| all.split(" OR ").any(|one| GOOD.contains(&one.trim())))
}

#[test]
fn licences_are_compatible() {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let data: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let packages = data["packages"].as_array().expect("packages");
    let bad: Vec<_> = packages
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(allowed))
        .map(|p| format!("{} {}: {}", p["name"], p["version"], p["license"]))
        .collect();
    assert!(bad.is_empty(), "licences to look at:\n{}", bad.join("\n"));
    assert!(
        packages.len() > 10,
        "only {} packages were seen",
        packages.len()
    );
}
