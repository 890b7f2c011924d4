//! Forms of symbolic texts, which only the controller can render.

use spile_ir::{Inst, Val};

/// The data are addresses of the kernel.
const KERNEL: u8 = 1;
/// The text is about the current program's stack, rather than one address.
const STACK: u8 = 1 << 1;
/// The text contains positions in the source.
const LINES: u8 = 1 << 2;
/// The text is only printed: kernel handlers cannot make it.
const PRINTED: u8 = 1 << 3;
/// The data do not contain the addresses themselves.
const RELATIVE: u8 = 1 << 4;

macro_rules! symbolic {
    ($($(#[$doc:meta])* $name:ident $letter:literal $properties:expr;)*) => {
        /// A form of symbolic text, which only the controller can render. In strings of kernel
        /// handlers a mark stands for such a text: the session's word ([`crate::shared::MARK`]),
        /// the form's letter, the data, and a semicolon.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum SymbolicForm {
            $($(#[$doc])* $name,)*
        }

        impl SymbolicForm {
            /// Each form with its letter and its properties.
            const ALL: &[(SymbolicForm, u8, u8)] =
                &[$((SymbolicForm::$name, $letter, $properties)),*];
        }
    };
}

symbolic! {
    /// Addresses of the kernel: one line each, with address, symbol, offset, size, module.
    KernelLines b'K' KERNEL;
    /// The current program's stack, in the same form as [`SymbolicForm::KernelLines`].
    UserLines b'U' STACK;
    /// The current program's stack: one line each, with symbol, offset, name of the file.
    UserSimple b'S' STACK | RELATIVE;
    /// The current program's stack: one line each, with symbol and offset.
    UserBrief b'B' STACK | RELATIVE;
    /// The current program's stack: address, symbol, offset, size, file, position in the source.
    UserFileLines b'L' STACK | LINES;
    /// Name of the symbol at an address of the current program.
    UserName b'N' 0;
    /// Symbol, offset, size and file of an address of the current program.
    UserData b'D' 0;
    /// Path of the file that an address of the current program is in.
    UserModule b'M' 0;
    /// Position in the source of an address of the current program.
    UserFileLine b'F' LINES;
    /// Source file of an address of the current program.
    UserFile b'P' LINES;
    /// Line in the source of an address of the current program.
    UserLine b'Q' LINES;
    /// Addresses of the kernel: one line each, with symbol, offset, module.
    KernelSimple b'C' KERNEL;
    /// Addresses of the kernel: address, symbol, offset, size, position in the source, module.
    KernelFileLines b'G' KERNEL | LINES | PRINTED;
    /// Position in the source of an address of the kernel.
    KernelFileLine b'H' KERNEL | LINES;
    /// Source file of an address of the kernel.
    KernelFile b'I' KERNEL | LINES;
    /// Line in the source of an address of the kernel.
    KernelLine b'J' KERNEL | LINES;
    /// The current program's stack: one line each, with symbol, offset, name of the file, position
    /// in the source.
    UserSimpleLines b'R' STACK | LINES | RELATIVE;
    /// Name of the symbol at an address of the current program, a tab, and its position in the
    /// source.
    UserLocation b'T' LINES;
    /// Addresses of the current program, separated by spaces, that continue the addresses of a
    /// text.
    UserAddresses b'A' 0;
    /// Addresses of the current program that continue a text: one line each, with address, symbol,
    /// offset, size, file.
    UserAddressLines b'V' 0;
    /// Addresses of the kernel, limited to whole lines that fit in a string: address, symbol,
    /// offset, size, module.
    KernelWholeLines b'W' KERNEL;
    /// File of an address of the current program, and the offset in the file.
    UserOffset b'E' PRINTED;
    /// A number that no word holds: see [`spile_ir::wide`].
    Number b'O' PRINTED;
}

impl SymbolicForm {
    /// The form with this number in the intrinsic.
    pub fn by_number(n: i64) -> Option<SymbolicForm> {
        let index = usize::try_from(n).ok()?;
        Self::ALL.get(index).map(|row| row.0)
    }

    fn has(self, property: u8) -> bool {
        Self::ALL[self as usize].2 & property != 0
    }

    /// Whether the text is about the current program's stack, rather than one address.
    pub fn of_stack(self) -> bool {
        self.has(STACK)
    }

    /// Whether kernel handlers can make the text themselves.
    pub fn in_kernel(self) -> bool {
        !self.has(PRINTED)
    }

    /// Whether kernel handlers need the kernel's lines ([`crate::kernel_row`]) for the text.
    pub fn by_kernel_lines(self) -> bool {
        self.in_kernel() && self.of_kernel() && self.has_lines()
    }

    /// Whether kernel handlers need the tables of files for the text.
    pub fn by_tables(self) -> bool {
        !self.of_kernel() && !matches!(self, SymbolicForm::UserAddresses | SymbolicForm::Number)
    }

    /// Whether the text contains positions in the source.
    pub fn has_lines(self) -> bool {
        self.has(LINES)
    }

    /// The form of the text that an instruction produces, if it produces one.
    pub fn for_inst(inst: &Inst) -> Option<SymbolicForm> {
        use spile_ir::Intrinsic::{Interrupted, UserStack};
        match inst {
            Inst::Intr { f: Interrupted, .. } => Some(SymbolicForm::UserName),
            Inst::Intr { f: UserStack, .. } => Some(SymbolicForm::UserAddresses),
            Inst::Intr { f, args, .. } if f.is_symbolic() => match args.first() {
                Some(Val::Imm(form)) => SymbolicForm::by_number(*form),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether kernel handlers can make the text that this instruction produces.
    pub fn made_in_kernel(inst: &Inst) -> bool {
        Self::for_inst(inst).is_some_and(SymbolicForm::in_kernel)
    }

    /// Whether the data are addresses of the kernel.
    pub fn of_kernel(self) -> bool {
        self.has(KERNEL)
    }

    /// Whether the data contain the addresses themselves. Otherwise the same code has the same mark
    /// in all processes.
    pub fn full(self) -> bool {
        !self.has(RELATIVE)
    }

    /// Number of frames in one mark: the number that always fits in a string of the default width.
    pub fn piece(self) -> i32 {
        use SymbolicForm::{KernelFileLines, KernelLines, UserFileLines, UserLines};
        match self {
            KernelLines | KernelFileLines | UserLines | UserFileLines => 16,
            _ => i32::MAX,
        }
    }

    /// The form's letter, a capital.
    pub fn letter(self) -> u8 {
        Self::ALL[self as usize].1
    }

    /// The form with this letter.
    pub fn by_letter(letter: u8) -> Option<SymbolicForm> {
        Self::ALL
            .iter()
            .find(|row| row.1 == letter)
            .map(|row| row.0)
    }
}

/// Whether an instruction unwinds the kernel's stack.
pub fn takes_kernel_stack(inst: &Inst) -> bool {
    use spile_ir::intrinsics::Intrinsic::{KernelFrame, KernelStack, KernelSymbolic};
    matches!(
        inst,
        Inst::Intr {
            f: KernelStack | KernelFrame | KernelSymbolic,
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::SymbolicForm;

    #[test]
    fn analysis_has_the_number_of_the_form() {
        assert_eq!(SymbolicForm::Number as i64, spile_ir::wide::FORM);
    }
}
