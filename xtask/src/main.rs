//! Chores of the project: `cargo xtask bench [PART]...`.

mod bench;
mod peers;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("bench") => bench::run(&args[1..]),
        _ => {
            eprintln!("usage: cargo xtask bench [start] [hits] [exact]");
            std::process::exit(2);
        }
    }
}
