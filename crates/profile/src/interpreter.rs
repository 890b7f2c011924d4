//! Interpreters whose programs' functions are in stacks, in the place of the interpreter's own.

use serde::{Deserialize, Serialize};

/// An interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpreter {
    /// CPython.
    Python,
    /// Ruby (MRI).
    Ruby,
    /// PHP.
    Php,
}

impl Interpreter {
    /// All interpreters.
    pub const ALL: [Interpreter; 3] = [Interpreter::Python, Interpreter::Ruby, Interpreter::Php];

    /// The interpreter whose program or library a file is, by its name without folders.
    pub fn of_module(name: &str) -> Option<Interpreter> {
        let name = name.strip_prefix("lib").unwrap_or(name);
        let mut all = Interpreter::ALL.into_iter();
        all.find(|interpreter| name.starts_with(interpreter.program()))
    }

    /// The name of its program, to which distributions add versions.
    pub fn program(self) -> &'static str {
        match self {
            Interpreter::Python => "python",
            Interpreter::Ruby => "ruby",
            Interpreter::Php => "php",
        }
    }

    /// The name of the language.
    pub fn language(self) -> &'static str {
        match self {
            Interpreter::Python => "Python",
            Interpreter::Ruby => "Ruby",
            Interpreter::Php => "PHP",
        }
    }

    /// Whether this C function executes functions of the language. One call of it can execute several that call each
    /// other: a run.
    pub fn executes(self, function: &str) -> bool {
        function.starts_with(match self {
            Interpreter::Python => "_PyEval_EvalFrameDefault",
            Interpreter::Ruby => "rb_vm_exec",
            Interpreter::Php => "execute_ex",
        })
    }
}
