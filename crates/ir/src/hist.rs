//! Histograms: the bucket of a value, the label of a bucket, and the picture.
//!
//! The picture is 50 columns of `@` wide. The fullest bucket sets the scale: up to 50 one `@`
//! is one value, above that it is `ceil(fullest / 50)` values. Two rows are shown on each side
//! of the first and the last non-empty bucket where the range allows (the logarithmic one
//! does not go on below 0). A row is left out when it and its two neighbours on each side are
//! all empty; one `~` under the axis stands for each run of rows left out. The picture ends
//! with an empty line.

use spile_cast::Cast;

use crate::Hist;

/// Columns of the picture.
const WIDTH: u64 = 50;
/// Number of empty neighbours on each side that make an empty row disappear.
const ELISION: usize = 2;
/// The bucket of a logarithmic histogram that holds 0.
const LOG_ZERO: usize = 64;

impl Hist {
    /// The bucket of a value, always less than [`Hist::buckets`].
    pub fn bucket(self, v: i64) -> usize {
        match self {
            Hist::Log => {
                let bits = (64 - v.unsigned_abs().leading_zeros()) as usize;
                if v < 0 {
                    LOG_ZERO - bits
                } else {
                    (LOG_ZERO + bits).min(127)
                }
            }
            Hist::Linear { low, step, .. } => {
                let last = u128::from(self.buckets() - 1);
                let off = i128::from(v) - i128::from(low);
                match u128::try_from(off) {
                    Err(_) => 0,
                    Ok(off) => (off / step.max(1).fit::<u128>() + 1).min(last) as usize,
                }
            }
        }
    }

    /// The label of a bucket's row: for a logarithmic bucket the value nearest to 0, for a linear
    /// one the lowest. The linear underflow bucket is labelled with the first value that it does
    /// not hold, the overflow bucket with the last regular bucket's label.
    pub fn label(self, bucket: usize) -> i64 {
        match self {
            Hist::Log if bucket >= LOG_ZERO => match bucket - LOG_ZERO {
                0 => 0,
                n => 1i64.wrapping_shl(n.fit::<u32>() - 1),
            },
            Hist::Log => 1i64
                .wrapping_shl((LOG_ZERO - bucket).fit::<u32>() - 1)
                .wrapping_neg(),
            Hist::Linear { low, step, .. } => {
                let last = self.buckets() as usize - 1;
                let n = match bucket {
                    0 => 0,
                    b if b >= last => last.saturating_sub(2),
                    b => b - 1,
                };
                low.wrapping_add(step.max(1).wrapping_mul(n.fit::<i64>()))
            }
        }
    }

    /// Draws the picture; "" for a histogram without values.
    pub fn draw(self, buckets: &[u64]) -> String {
        let shown = &buckets[..buckets.len().min(self.buckets() as usize)];
        let (Some(mut low), Some(mut high)) = (
            shown.iter().position(|c| *c != 0),
            shown.iter().rposition(|c| *c != 0),
        ) else {
            return String::new();
        };
        let last = shown.len() - 1;
        for _ in 0..2 {
            if low > 0 && !(self == Hist::Log && low == LOG_ZERO) {
                low -= 1;
            }
            high = (high + 1).min(last);
        }
        let linear = matches!(self, Hist::Linear { .. });
        if linear {
            // The outer buckets are drawn only when they are not empty.
            low += usize::from(low == 0 && shown[0] == 0);
            high -= usize::from(high == last && shown[last] == 0);
        }
        let outer = |i: usize| linear && (i == 0 || i == last);
        let text = |i: usize| {
            let mark = match i {
                _ if !outer(i) => "",
                0 => "<",
                _ => ">",
            };
            format!("{mark}{}", self.label(i))
        };
        let max = shown.iter().copied().max().unwrap_or(0);
        let scale = max.div_ceil(WIDTH).max(1);
        let values = text(low).len().max(text(high).len()).max("value".len());
        let counts = max.to_string().len();

        let mut out = format!(
            "{:>values$} |{} count\n",
            "value",
            "-".repeat(WIDTH.fit::<usize>())
        );
        let mut skipped = false;
        for i in low..=high {
            let near = &shown[i.saturating_sub(ELISION).max(low)..=(i + ELISION).min(high)];
            if near.iter().all(|c| *c == 0) {
                skipped = true;
                continue;
            }
            if std::mem::take(&mut skipped) {
                out.push_str(&format!("{:values$} ~\n", ""));
            }
            let bar = "@".repeat((shown[i] / scale).fit::<usize>());
            out.push_str(&format!(
                "{:>values$} |{bar:<50} {:>counts$}\n",
                text(i),
                shown[i]
            ));
        }
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(h: Hist, values: &[(i64, u64)]) -> Vec<u64> {
        let mut b = vec![0; h.buckets() as usize];
        for (v, n) in values {
            b[h.bucket(*v)] += n;
        }
        b
    }

    #[test]
    fn values_fall_into_log_buckets() {
        for (v, b) in [
            (0, 64),
            (1, 65),
            (2, 66),
            (3, 66),
            (4, 67),
            (-1, 63),
            (-2, 62),
            (i64::MAX, 127),
            (i64::MIN, 0),
        ] {
            assert_eq!(Hist::Log.bucket(v), b, "{v}");
        }
        for b in 0..128 {
            assert_eq!(Hist::Log.bucket(Hist::Log.label(b)), b);
        }
    }

    #[test]
    fn values_fall_into_linear_buckets() {
        let h = Hist::Linear {
            low: 0,
            high: 10240,
            step: 200,
        };
        assert_eq!(h.buckets(), 54);
        for (v, b) in [
            (-1, 0),
            (0, 1),
            (199, 1),
            (200, 2),
            (10_399, 52),
            (10_400, 53),
        ] {
            assert_eq!(h.bucket(v), b, "{v}");
        }
        assert_eq!(h.label(53), 10_200);
        let whole = Hist::Linear {
            low: i64::MIN,
            high: i64::MAX,
            step: 1,
        };
        assert!(whole.bucket(i64::MAX) < whole.buckets() as usize);
    }

    #[test]
    fn linear_picture_leaves_out_long_runs() {
        let h = Hist::Linear {
            low: 0,
            high: 10240,
            step: 200,
        };
        let got = h.draw(&fill(h, &[(0, 1650), (200, 8), (1400, 1)]));
        let bar = "@".repeat(50);
        let gap = " ".repeat(50);
        let want = format!(
            "value |{} count\n    0 |{bar} 1650\n  200 |{gap}    8\n  400 |{gap}    0\n  \
             600 |{gap}    0\n      ~\n 1000 |{gap}    0\n 1200 |{gap}    0\n 1400 |{gap}    \
             1\n 1600 |{gap}    0\n 1800 |{gap}    0\n\n",
            "-".repeat(50)
        );
        assert_eq!(got, want);
    }

    #[test]
    fn log_picture_starts_at_zero_and_scales() {
        let got = Hist::Log.draw(&fill(Hist::Log, &[(1, 9), (2, 82)]));
        let lines: Vec<&str> = got.lines().collect();
        assert!(lines[1].starts_with("    0 |  "));
        assert_eq!(lines[2], format!("    1 |{:<50}  9", "@@@@"));
        assert_eq!(lines[3], format!("    2 |{:<50} 82", "@".repeat(41)));
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[6], "");
    }

    #[test]
    fn outer_rows_of_a_linear_picture_have_signs() {
        let h = Hist::Linear {
            low: 100,
            high: 120,
            step: 10,
        };
        let got = h.draw(&fill(h, &[(5, 1), (100, 2), (500, 3)]));
        let rows: Vec<&str> = got
            .lines()
            .skip(1)
            .map(|l| l.split(" |").next().unwrap())
            .collect();
        assert_eq!(rows, [" <100", "  100", "  110", "  120", " >120", ""]);
    }

    #[test]
    fn negative_values_have_rows_in_a_log_picture() {
        let got = Hist::Log.draw(&fill(Hist::Log, &[(-1000, 1)]));
        let rows: Vec<&str> = got
            .lines()
            .skip(1)
            .map(|l| l.split(" |").next().unwrap())
            .collect();
        assert_eq!(rows, ["-2048", "-1024", " -512", " -256", " -128", ""]);
        assert_eq!(Hist::Log.draw(&[0; 128]), "");
    }
}
