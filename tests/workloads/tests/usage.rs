//! Each workload says what is wrong with its arguments. Cargo builds the programs for this test, so that they
//! are there when all tests run.

use std::process::Command;

#[test]
fn wrong_arguments_are_named() {
    let programs = [
        ("load", env!("CARGO_BIN_EXE_load")),
        ("rare", env!("CARGO_BIN_EXE_rare")),
        ("nfs", env!("CARGO_BIN_EXE_nfs")),
        ("arm", env!("CARGO_BIN_EXE_arm")),
    ];
    for (name, program) in programs {
        let ended = Command::new(program).arg("nonsense").output();
        let ended = ended.expect("a program");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{name}");
        assert!(said.contains(name), "{name}: {said}");
    }
}
