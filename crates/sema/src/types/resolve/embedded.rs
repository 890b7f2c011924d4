//! Embedded C: it is refused, with the functions of the library that do the same.

use spile_syntax::ast::Embedded;
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use crate::types::codes;

/// Words of C code for SystemTap's runtime and the kernel, and what scripts write instead. The
/// longer words come before their parts.
const INSTEAD: &[(&str, &str)] = &[
    ("current->pid", "tid()"),
    ("current->tgid", "pid()"),
    ("current->comm", "execname()"),
    (
        "current->mm",
        "`@cast(task_current(), \"task_struct\")->mm`",
    ),
    ("real_parent", "ppid()"),
    ("->parent", "task_parent(task)"),
    ("current_uid", "uid()"),
    ("current_euid", "euid()"),
    ("current_gid", "gid()"),
    ("current_egid", "egid()"),
    ("task_nice", "task_nice(task)"),
    ("smp_processor_id", "cpu()"),
    ("for_each_process", "pid2task(pid)"),
    ("find_task_by", "pid2task(pid)"),
    ("pid_task", "pid2task(pid)"),
    ("files_fdtable", "task_open_file_handles(task)"),
    ("fcheck", "task_fd_lookup(task, fd)"),
    ("d_path", "task_dentry_path(task, dentry, vfsmount)"),
    ("rlim", "task_rlimit(task, limit)"),
    ("sigset", "sigset_mask_str(mask)"),
    ("dump_stack", "print_backtrace()"),
    ("get_cycles", "get_cycles()"),
    ("ktime_get", "gettimeofday_ns()"),
    ("do_gettimeofday", "gettimeofday_us()"),
    ("get_seconds", "gettimeofday_s()"),
    ("jiffies", "jiffies()"),
    ("prandom", "randint(n)"),
    ("get_random", "randint(n)"),
    ("kallsyms_lookup", "symname(address)"),
    ("copy_from_user", "user_long(address)"),
    ("get_user", "user_long(address)"),
    ("strncpy_from_user", "user_string(address)"),
    ("skb_", "format_ipaddr(address, family)"),
    ("ntohs", "ntohs(n)"),
    ("ntohl", "ntohl(n)"),
    ("inet_ntop", "ip_ntop(address)"),
    ("simple_strto", "strtol(text, base)"),
    ("kstrto", "strtol(text, base)"),
    ("strstr", "isinstr(text, part)"),
    ("strlen", "strlen(text)"),
    ("snprintf", "sprintf(...)"),
    ("stp_print", "printf(...)"),
    ("STAP_PRINTF", "printf(...)"),
    ("printk", "printf(...)"),
    ("last_error", "error(message)"),
    ("STAP_ERROR", "error(message)"),
    ("panic", "exit()"),
];

/// Most functions that a message names.
const SHOWN: usize = 4;

/// The functions that do what this C code does, as far as its words say.
fn instead(code: &str) -> Vec<&'static str> {
    let mut functions: Vec<&str> = Vec::new();
    for (word, function) in INSTEAD {
        if code.contains(word) && !functions.contains(function) {
            functions.push(function);
        }
    }
    functions.truncate(SHOWN);
    functions
}

impl Resolver<'_> {
    /// Refuses embedded C.
    pub(super) fn embedded(&mut self, code: &Embedded) {
        let functions = instead(&code.text);
        let help = match functions.is_empty() {
            true => "use functions of the library, `@cast` and `@kderef` instead".to_owned(),
            false => format!(
                "the library has {} for it; `@cast` and `@kderef` read other kernel memory",
                functions.join(", ")
            ),
        };
        self.report(
            Diagnostic::error(codes::NOT_SUPPORTED, "embedded C cannot run in eBPF")
                .at(code.span)
                .help(help),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_c_name_functions() {
        assert_eq!(instead("int x;"), Vec::<&str>::new());
        assert_eq!(
            instead("STAP_RETVALUE = current->pid + smp_processor_id();"),
            ["tid()", "cpu()"]
        );
    }

    /// Every function that a message can name is one of the library.
    #[test]
    fn the_functions_exist() {
        let mut names = rustc_hash::FxHashSet::default();
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tapset");
        for entry in std::fs::read_dir(dir).expect("the library") {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|e| e == "stp") {
                let text = std::fs::read_to_string(&path).expect("text");
                for line in text.lines() {
                    if let Some(rest) = line.strip_prefix("function ") {
                        let end = rest.find([':', '(']).unwrap_or(rest.len());
                        names.insert(rest[..end].to_owned());
                    }
                }
            }
        }
        for (_, function) in INSTEAD {
            let name = function.split('(').next().unwrap_or("");
            let built_in = name.starts_with('`') || name.ends_with("printf");
            assert!(built_in || names.contains(name), "{name}");
        }
    }
}
