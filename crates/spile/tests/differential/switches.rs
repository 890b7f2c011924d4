//! Constructs that kernel handlers learned later than others. A construct whose sample analysis
//! refuses is left out of random scripts, and a test reports it.

use crate::check;
use crate::generate::Script;

macro_rules! switches {
    ($($name:ident $sample:literal)*) => {
        /// A construct that can be left out.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Switch { Always, $($name),* }

        const SAMPLES: &[(Switch, &str)] = &[$((Switch::$name, $sample)),*];
    };
}

switches! {
    Loops "while (n < 3) n++ for (m = 0; m < 2; m++) n++"
    Recursion "f(3)"
    Foreach "foreach ([k, s] in a) n += k foreach (v = [k, s] in a- limit 3) n += v a[n, \"\"] = 1"
    Hist "st <<< 1 n = @hist_log(st)[64] print(@hist_log(st)) foreach (b in @hist_log(st)) n += b"
    Variance "st <<< 1 n = @variance(st)"
    Regex "if (s =~ \"a+\") s = matched(0)"
    Strpos "n = strpos(s, \"a\")"
    Replace "s = str_replace(s, \"a\", \"b\")"
    Tokenize "s = tokenize(s, \",\")"
    Escapes "s = text_str(s) . string_quoted(s) . text_strn(s, 3, 1)"
    Memory "printf(\"%4m %4M\", n, n)"
}

/// The enabled constructs, and the reasons for the others.
pub(crate) struct Switches {
    on: Vec<Switch>,
    off: Vec<(Switch, String)>,
}

impl Switches {
    /// Asks analysis about each construct.
    pub(crate) fn ask() -> Switches {
        let analyse = |sample: &str| {
            let text = format!(
                "global a, st function f:long(n:long) {{ return n > 0 ? f(n - 1) : 0 }} \
                 probe kernel.trace(\"numbers\") {{ n = $a s = \"x\" {sample} \
                 println(n) println(s) }} probe never {{ a[1, \"\"] = 1 st <<< 1 f(1) }}"
            );
            let defines = Vec::new();
            check::analyse(&Script { text, defines })
        };
        if let Err(e) = analyse("") {
            panic!("a script without any of them is refused: {e}");
        }
        let (mut on, mut off) = (vec![Switch::Always], Vec::new());
        for (switch, sample) in SAMPLES {
            match analyse(sample) {
                Ok(_) => on.push(*switch),
                Err(e) => off.push((*switch, e.lines().next().unwrap_or_default().into())),
            }
        }
        Switches { on, off }
    }

    /// Whether a construct is enabled.
    pub(crate) fn has(&self, s: Switch) -> bool {
        self.on.contains(&s)
    }

    /// The disabled constructs, with analysis' reasons.
    pub(crate) fn off(&self) -> &[(Switch, String)] {
        &self.off
    }
}
