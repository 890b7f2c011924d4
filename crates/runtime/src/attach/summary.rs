//! How programs are attached, for `-v`.

use std::collections::HashMap;
use std::fmt;

use spile_bpf::compiled::CodeAttach;
use spile_ir::{CodeProbe, SiteId, Space};

use crate::attach::site::count;

/// The attach kind of a probe's programs, and the number of locations.
#[derive(Debug)]
pub(crate) struct AttachSummary {
    /// The probe in the script, and its name.
    pub probe: Option<SiteId>,
    pub name: String,
    how: &'static str,
    locations: usize,
    left_out: usize,
    programs: usize,
    /// Number of locations with another attach kind.
    others: usize,
}

impl AttachSummary {
    /// The attach kind of one program.
    pub(crate) fn for_program(
        (probe, name): (Option<SiteId>, String),
        code: &CodeProbe,
        (by, followed): (CodeAttach, bool),
        left_out: usize,
    ) -> AttachSummary {
        AttachSummary {
            probe,
            name,
            how: match followed {
                true => followed_name(code),
                false => kind_name(code, by),
            },
            locations: count(code).saturating_sub(left_out),
            left_out,
            programs: 1,
            others: 0,
        }
    }

    /// Lines of text, with the programs of each probe joined.
    pub(crate) fn lines(summaries: Vec<AttachSummary>) -> Vec<String> {
        let mut lines: Vec<AttachSummary> = Vec::new();
        let mut line_of: HashMap<_, usize> = HashMap::new();
        for summary in summaries {
            let index = *line_of
                .entry((summary.probe, summary.how))
                .or_insert(lines.len());
            match lines.get_mut(index).filter(|_| summary.probe.is_some()) {
                Some(line) => {
                    line.others += usize::from(line.name != summary.name);
                    line.locations += summary.locations;
                    line.left_out += summary.left_out;
                    line.programs += 1;
                }
                None => lines.push(summary),
            }
        }
        lines.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for AttachSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.others {
            0 => {}
            1 => f.write_str(" and another")?,
            n => write!(f, " and {n} others")?,
        }
        match self.locations {
            1 => write!(f, ": 1 location by {}", self.how)?,
            n => write!(f, ": {n} locations by {}", self.how)?,
        }
        if self.programs > 1 {
            write!(f, ", {} programs", self.programs)?;
        }
        match self.left_out {
            0 => Ok(()),
            n => write!(f, ", {n} left out"),
        }
    }
}

/// The kernel's name of the attach kind in the memory of the target's processes.
fn followed_name(probe: &CodeProbe) -> &'static str {
    match (probe.at_exits(), probe.ret) {
        (true, _) => "uprobe events at return instructions in the target's processes",
        (false, true) => "uretprobe events in the target's processes",
        (false, false) => "uprobe events in the target's processes",
    }
}

/// The kernel's name of the attach kind.
fn kind_name(probe: &CodeProbe, by: CodeAttach) -> &'static str {
    if probe.at_exits() {
        return match by {
            CodeAttach::Multi => "uprobe.multi at return instructions",
            _ => "uprobe at return instructions",
        };
    }
    match (by, probe.space, probe.ret) {
        (CodeAttach::Multi, Space::Kernel, false) => "kprobe.multi",
        (CodeAttach::Multi, Space::Kernel, true) => "kretprobe.multi",
        (CodeAttach::Multi, Space::User, false) => "uprobe.multi",
        (CodeAttach::Multi, Space::User, true) => "uretprobe.multi",
        (CodeAttach::Session, _, _) => "kprobe.session",
        (CodeAttach::Single, Space::Kernel, false) => "kprobe",
        (CodeAttach::Single, Space::Kernel, true) => "kretprobe",
        (CodeAttach::Single, Space::User, false) => "uprobe",
        (CodeAttach::Single, Space::User, true) => "uretprobe",
        (CodeAttach::Trampoline(_), _, false) => "fentry",
        (CodeAttach::Trampoline(_), _, true) => "fexit",
    }
}

#[cfg(test)]
mod tests {
    use spile_ir::{CodeLocation, CodeSite};

    use super::*;

    #[test]
    fn the_programs_of_a_probe_are_one_line_of_the_summary() {
        let site = CodeSite {
            location: CodeLocation::Address(0),
            semaphore: 0,
            number: 0,
            exits: None,
        };
        let probe = CodeProbe {
            space: Space::User,
            ret: false,
            pid: None,
            tree: false,
            optional_sites: Default::default(),
            sites: vec![site.clone(), site.clone(), site],
        };
        let means = |id: Option<u32>, name: &str, by, left_out| {
            AttachSummary::for_program((id.map(SiteId), name.into()), &probe, (by, false), left_out)
        };
        let (multi, single) = (CodeAttach::Multi, CodeAttach::Single);
        let lines = AttachSummary::lines(vec![
            means(Some(1), "f", multi, 0),
            means(Some(1), "f", single, 2),
            means(Some(2), "a", multi, 1),
            means(Some(2), "b", multi, 0),
            means(Some(2), "c", multi, 1),
            means(None, "x", multi, 0),
            means(None, "x", multi, 0),
        ]);
        let expected = [
            "f: 3 locations by uprobe.multi",
            "f: 1 location by uprobe, 2 left out",
            "a and 2 others: 7 locations by uprobe.multi, 3 programs, 2 left out",
            "x: 3 locations by uprobe.multi",
            "x: 3 locations by uprobe.multi",
        ];
        assert_eq!(lines, expected);
    }
}
