//! The activity of a machine as text: three lines, then tables of processors, interrupts and
//! processes.

use std::collections::BTreeMap;

use super::table::{TextTable, clauses, paragraph, section, shorten};
use super::units::{counted, percent, signed, time};
use crate::model::Ns;
use crate::system::{Cpu, Interrupt, InterruptKind, Process, ProcessPart, System};

/// Number of sentences about functions at most.
const SENTENCES: usize = 3;

/// The report in lines of at most `width` columns. `top` limits the rows of tables, except that of
/// processors.
pub fn system(system: &System, width: usize, top: usize) -> String {
    let interrupts = interrupts(system);
    let functions = functions(system);
    let mut out = head(system, &interrupts, width);
    out += &sentences(&functions, system, width);
    out += &cpus(system, width);
    out += &function_table(&functions, width, top, system.all().wall);
    out += &interrupt_table(&interrupts, width, top);
    out += &processes(system, width, top);
    for (what, count) in &system.lost {
        out += &clauses("Lost: ", &[format!("{count} {what}")], width);
    }
    out
}

/// An interrupt on all processors.
struct InterruptSum<'a> {
    kind: InterruptKind,
    name: &'a str,
    count: u64,
    ns: Ns,
    max: Ns,
    /// The highest count on one processor, and that processor.
    most: (u64, u32),
}

fn interrupts(system: &System) -> Vec<InterruptSum<'_>> {
    let mut sums: BTreeMap<(InterruptKind, &str), InterruptSum<'_>> = BTreeMap::new();
    for Interrupt {
        kind,
        name,
        cpu,
        count,
        ns,
        max,
    } in &system.interrupts
    {
        let sum = sums.entry((*kind, name)).or_insert(InterruptSum {
            kind: *kind,
            name,
            count: 0,
            ns: 0,
            max: 0,
            most: (0, 0),
        });
        sum.count += count;
        sum.ns += ns;
        sum.max = sum.max.max(*max);
        sum.most = sum.most.max((*count, *cpu));
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|s| std::cmp::Reverse((s.ns, s.count)));
    sums
}

fn head(system: &System, interrupts: &[InterruptSum<'_>], width: usize) -> String {
    let sum = system.all();
    let longest = system.cpus.iter().map(|c| c.wall).max().unwrap_or(0);
    let start = format!(
        "{}: {} for {}: ",
        system.host,
        counted(system.cpus.len() as u64, "processor"),
        time(longest)
    );
    let mut parts: Vec<_> = sum.parts().into_iter().filter(|(_, ns)| *ns > 0).collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let share = |ns: Ns| percent(ns as f64, sum.wall as f64);
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(name, ns)| format!("{} {name}", share(ns)))
        .collect();
    let mut out = clauses(&start, &parts, width);
    let most: Vec<_> = interrupts
        .iter()
        .map(|s| format!("{} {} in {}", s.count, s.name, time(s.ns)))
        .collect();
    out += &clauses("Interrupts: ", &most, width);
    let mut busiest: Vec<_> = system.processes.iter().filter(|p| p.cpu() > 0).collect();
    busiest.sort_by_key(|p| std::cmp::Reverse(p.cpu()));
    let busiest: Vec<_> = busiest
        .iter()
        .map(|p| format!("{} ({}) {}", p.name, p.pid, share(p.cpu())))
        .collect();
    out += &clauses("Processes: ", &busiest, width);
    out
}

/// A function in all processes of a name.
struct FunctionSum<'a> {
    process: String,
    function: &'a str,
    file: Option<&'a str>,
    part: ProcessPart,
    call: Option<&'a str>,
    ns: Ns,
}

impl FunctionSum<'_> {
    /// What the process did.
    fn doing(&self) -> &str {
        match (self.part, self.call) {
            (ProcessPart::System, Some(call)) => call,
            (ProcessPart::User | ProcessPart::System, _) => "running",
            (ProcessPart::Faults, _) => "page fault",
            (ProcessPart::Interrupts, _) => "interrupt",
        }
    }
}

/// Functions, the longest first.
fn functions(system: &System) -> Vec<FunctionSum<'_>> {
    let names: BTreeMap<u32, String> = system.processes.iter().map(|p| (p.pid, name(p))).collect();
    let mut sums: BTreeMap<_, Ns> = BTreeMap::new();
    for f in &system.functions {
        let process = names.get(&f.pid).map_or("?", String::as_str);
        let key = (
            process,
            &*f.function,
            f.file.as_deref(),
            f.part,
            f.call.as_deref(),
        );
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(f.ns);
    }
    let sums = sums
        .into_iter()
        .map(|((process, function, file, part, call), ns)| FunctionSum {
            process: process.to_owned(),
            function,
            file,
            part,
            call,
            ns,
        });
    let mut sums: Vec<_> = sums.collect();
    sums.sort_by_key(|f| std::cmp::Reverse(f.ns));
    sums
}

/// A sentence for each function with 5 % of the processors' time or more.
fn sentences(functions: &[FunctionSum<'_>], system: &System, width: usize) -> String {
    let whole = system.all().wall;
    let large = functions
        .iter()
        .filter(|f| u128::from(f.ns) * 20 >= u128::from(whole.max(1)));
    let sentence = |f: &FunctionSum<'_>| {
        let share = percent(f.ns as f64, whole as f64);
        let doing = match f.doing() {
            "running" => "on the processor".to_owned(),
            doing => format!("in {doing}"),
        };
        let text = format!(
            "{share} of {}: `{}` of {}, {doing}",
            counted(system.cpus.len() as u64, "processor"),
            // The table has all of it.
            shorten(f.function, width / 2),
            f.process
        );
        paragraph(&text, "  ", width)
    };
    large.take(SENTENCES).map(sentence).collect()
}

fn function_table(functions: &[FunctionSum<'_>], width: usize, top: usize, whole: Ns) -> String {
    if functions.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&[
        ("function", 0),
        ("time", 0),
        ("share", 0),
        ("process", 0),
        ("doing", 1),
        ("file", 2),
    ]);
    for f in functions.iter().take(top) {
        let file = f.file.map(|file| file.rsplit('/').next().unwrap_or(file));
        table.rows.push(vec![
            f.function.to_owned(),
            cell(f.ns),
            percent(f.ns as f64, whole as f64),
            f.process.clone(),
            f.doing().to_owned(),
            file.unwrap_or("kernel").to_owned(),
        ]);
    }
    section(
        "Functions",
        &table,
        width,
        functions.len().saturating_sub(top),
    )
}

/// A process's name; that of a thread of the kernel is in brackets.
fn name(process: &Process) -> String {
    match process.kernel {
        true => format!("[{}]", process.name),
        false => process.name.clone(),
    }
}

/// A time in a table; "0" for none.
fn cell(ns: Ns) -> String {
    if ns == 0 { "0".to_owned() } else { time(ns) }
}

fn cpus(system: &System, width: usize) -> String {
    let mut columns = vec![("processor", 0), ("wall", 8)];
    let drops = [1, 1, 5, 2, 2, 1, 6];
    let names = Cpu::default().parts().map(|(name, _)| name);
    columns.extend(names.into_iter().zip(drops));
    columns.extend([("residual", 0), ("switches", 4), ("migrations", 7)]);
    let mut table = TextTable::new(&columns);
    let row = |name: String, cpu: &Cpu| {
        let mut row = vec![name, time(cpu.wall)];
        row.extend(cpu.parts().map(|(_, ns)| cell(ns)));
        let residual = cpu.residual();
        row.push(match percent(residual as f64, cpu.wall as f64).as_str() {
            "-" => signed(residual),
            share => share.to_owned(),
        });
        row.push(cpu.switches.to_string());
        row.push(cpu.migrations.to_string());
        row
    };
    for cpu in &system.cpus {
        table.rows.push(row(cpu.cpu.to_string(), cpu));
    }
    if system.cpus.len() > 1 {
        table.rows.push(row("all".to_owned(), &system.all()));
    }
    table.narrow = 9;
    format!("\n{}", table.render(width))
}

fn interrupt_table(sums: &[InterruptSum<'_>], width: usize, top: usize) -> String {
    let mut table = TextTable::new(&[
        ("interrupt", 0),
        ("kind", 3),
        ("count", 0),
        ("time", 0),
        ("mean", 1),
        ("longest", 1),
        ("most on", 2),
    ]);
    for sum in sums.iter().take(top) {
        table.rows.push(vec![
            sum.name.to_owned(),
            match sum.kind {
                InterruptKind::Device => "device",
                InterruptKind::Vector => "processor",
                InterruptKind::Softirq => "softirq",
            }
            .to_owned(),
            sum.count.to_string(),
            cell(sum.ns),
            time(sum.ns / sum.count.max(1)),
            time(sum.max),
            format!(
                "{}: {}",
                sum.most.1,
                percent(sum.most.0 as f64, sum.count as f64)
            ),
        ]);
    }
    section("Interrupts", &table, width, sums.len().saturating_sub(top))
}

fn processes(system: &System, width: usize, top: usize) -> String {
    let mut table = TextTable::new(&[
        ("process", 0),
        ("pid", 0),
        ("on CPU", 0),
        ("user", 1),
        ("system", 1),
        ("faults", 4),
        ("unseen", 5),
        ("waiting", 0),
        ("interrupts", 3),
        ("in these", 2),
        ("switches", 6),
        ("migrations", 7),
    ]);
    let mut order: Vec<_> = system.processes.iter().collect();
    order.sort_by_key(|p| std::cmp::Reverse((p.cpu(), p.waiting)));
    for process in order.iter().take(top) {
        let mut row = vec![name(process), process.pid.to_string()];
        row.extend(
            [
                process.cpu(),
                process.user,
                process.system,
                process.faults,
                process.unseen,
                process.waiting,
            ]
            .map(cell),
        );
        row.push((process.irq + process.softirq).to_string());
        row.push(cell(process.irq_ns + process.softirq_ns));
        row.push(process.switches.to_string());
        row.push(process.migrations.to_string());
        table.rows.push(row);
    }
    table.narrow = 15;
    section("Processes", &table, width, order.len().saturating_sub(top))
}
