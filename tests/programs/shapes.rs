//! A program in Rust, for the cases of dwarf.toml.
mod shapes {
    pub struct Square {
        pub side: u32,
    }
    impl Square {
        #[inline(never)]
        pub fn area(&self, times: u64) -> u64 {
            u64::from(self.side) * u64::from(self.side) * times
        }
    }
}

fn main() {
    let s = shapes::Square { side: 7 };
    std::process::exit(i32::from(std::hint::black_box(s).area(2) == 0));
}
