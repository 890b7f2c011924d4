//! Forms of texts that only the controller can make.

use spile_ir::{Inst, Val};

macro_rules! symbolic {
    ($($(#[$doc:meta])* $name:ident $letter:literal;)*) => {
        /// Forms of texts that only the controller can make. In strings of kernel handlers
        /// stands for such a text the session's word ([`super::shared::MARK`]), the form's letter, what
        /// it is made of, and a semicolon.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Symbolic {
            $($(#[$doc])* $name,)*
        }

        impl Symbolic {
            const ALL: &[(Symbolic, u8)] = &[$((Symbolic::$name, $letter)),*];
        }
    };
}

symbolic! {
    /// Addresses of the kernel: a line each, address, symbol, offset, size, module.
    KernelLines b'K';
    /// The current program's stack, in the same lines.
    UserLines b'U';
    /// The current program's stack: a line each, symbol, offset, name of the file.
    UserSimple b'S';
    /// The current program's stack: a line each, symbol and offset.
    UserBrief b'B';
    /// The current program's stack: address, symbol, offset, size, file, place in the source.
    UserFileLines b'L';
    /// Name of the symbol at an address of the current program.
    UserName b'N';
    /// Symbol, offset, size and file of an address of the current program.
    UserData b'D';
    /// Path of the file that an address of the current program is in.
    UserModule b'M';
    /// Place in the source of an address of the current program.
    UserFileLine b'F';
    /// Source file of an address of the current program.
    UserFile b'P';
    /// Line in the source of an address of the current program.
    UserLine b'Q';
    /// Addresses of the kernel: a line each, symbol, offset, module.
    KernelSimple b'C';
    /// Addresses of the kernel: address, symbol, offset, size, place in the source, module.
    KernelFileLines b'G';
    /// Place in the source of an address of the kernel.
    KernelFileLine b'H';
    /// Source file of an address of the kernel.
    KernelFile b'I';
    /// Line in the source of an address of the kernel.
    KernelLine b'J';
    /// The current program's stack: a line each, symbol, offset, name of the file, place in the
    /// source.
    UserSimpleLines b'R';
    /// Name of the symbol at an address of the current program, a tab, and its place in the source.
    UserPlace b'T';
    /// Addresses of the current program, with spaces between: behind those that a text has.
    UserAddresses b'A';
    /// The same: a line each, address, symbol, offset, size, file.
    UserAddressLines b'V';
    /// As many lines as a string has room for of addresses of the kernel: address, symbol, offset, size, module.
    KernelWholeLines b'W';
    /// File of an address of the current program, and where in the file it is.
    UserOffset b'E';
}

impl Symbolic {
    /// By its number in the intrinsic.
    pub fn by_number(n: i64) -> Option<Symbolic> {
        let at = usize::try_from(n).ok()?;
        Self::ALL.get(at).map(|row| row.0)
    }

    /// Whether it is of the current program's stack, not of one address in it.
    pub fn of_stack(self) -> bool {
        use Symbolic::{UserBrief, UserFileLines, UserLines, UserSimple, UserSimpleLines};
        matches!(
            self,
            UserLines | UserSimple | UserBrief | UserFileLines | UserSimpleLines
        )
    }

    /// Whether kernel handlers can make the text themselves.
    pub fn in_kernel(self) -> bool {
        // These are only printed.
        !matches!(self, Symbolic::KernelFileLines | Symbolic::UserOffset)
    }

    /// Whether kernel handlers make it by the kernel's lines ([`super::kernel_row`]).
    pub fn by_kernel_lines(self) -> bool {
        self.in_kernel() && self.of_kernel() && self.has_lines()
    }

    /// Whether kernel handlers make it by tables of files.
    pub fn by_tables(self) -> bool {
        !self.of_kernel() && self != Symbolic::UserAddresses
    }

    /// Whether it has places in the source.
    pub fn has_lines(self) -> bool {
        use Symbolic::{
            KernelFile, KernelFileLine, KernelFileLines, KernelLine, UserFile, UserFileLine,
            UserFileLines, UserLine, UserPlace, UserSimpleLines,
        };
        matches!(
            self,
            UserFileLines
                | UserFileLine
                | UserFile
                | UserLine
                | UserSimpleLines
                | UserPlace
                | KernelFileLines
                | KernelFileLine
                | KernelFile
                | KernelLine
        )
    }

    /// The form of the text that an instruction makes, where it is one.
    pub fn of(inst: &Inst) -> Option<Symbolic> {
        use spile_ir::Intrinsic::{Interrupted, UserStack};
        match inst {
            Inst::Intr { f: Interrupted, .. } => Some(Symbolic::UserName),
            Inst::Intr { f: UserStack, .. } => Some(Symbolic::UserAddresses),
            Inst::Intr { f, args, .. } if f.is_symbolic() => match args.first() {
                Some(Val::Imm(form)) => Symbolic::by_number(*form),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether kernel handlers can make the text themselves that an instruction makes.
    pub fn made_in_kernel(inst: &Inst) -> bool {
        Self::of(inst).is_some_and(Symbolic::in_kernel)
    }

    /// Whether it is made of addresses of the kernel.
    pub fn of_kernel(self) -> bool {
        use Symbolic::{
            KernelFile, KernelFileLine, KernelFileLines, KernelLine, KernelLines, KernelSimple,
            KernelWholeLines,
        };
        matches!(
            self,
            KernelLines
                | KernelSimple
                | KernelFileLines
                | KernelFileLine
                | KernelFile
                | KernelLine
                | KernelWholeLines
        )
    }

    /// Whether what it is made of has the addresses themselves. Without them the same code has
    /// the same mark in all processes.
    pub fn full(self) -> bool {
        use Symbolic::{UserBrief, UserSimple, UserSimpleLines};
        !matches!(self, UserSimple | UserBrief | UserSimpleLines)
    }

    /// Frames in one mark; as many as a string of the usual width holds for sure.
    pub fn piece(self) -> i32 {
        use Symbolic::{KernelFileLines, KernelLines, UserFileLines, UserLines};
        match self {
            KernelLines | KernelFileLines | UserLines | UserFileLines => 16,
            _ => i32::MAX,
        }
    }

    /// Its letter, a capital.
    pub fn letter(self) -> u8 {
        Self::ALL[self as usize].1
    }

    /// By its letter.
    pub fn by_letter(letter: u8) -> Option<Symbolic> {
        Self::ALL
            .iter()
            .find(|row| row.1 == letter)
            .map(|row| row.0)
    }
}
