//! Maps the image and the entry code into a process. Its thread gets the files through a socket of its own, of which
//! we take the other end: that needs no name that both can open, and only the right to trace it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{ForeignRawFd, Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use spile_cast::Cast;

use crate::error::Error;
use crate::image::{AreaAccess, ImageArea, ProcessImage};
use crate::place::Place;
use crate::process::Memory;
use crate::processor::PAGE;
use crate::remote::Remote;

/// A stopped thread that maps.
pub(crate) struct Mapper<'a> {
    pub(crate) pid: u32,
    pub(crate) remote: &'a Remote,
    /// The address of an instruction that calls the kernel.
    pub(crate) at: u64,
    pub(crate) memory: &'a Memory,
    pub(crate) place: Place,
}

/// Positions in the page of the process while files are passed.
const SOCKETS: u64 = 0;
const HEADER: u64 = 64;
const DATA: u64 = 160;
const BYTE: u64 = 192;
const CONTROL: u64 = 256;
const CONTROL_LENGTH: u64 = 64;

const MADV_WIPEONFORK: u64 = 18;

impl Mapper<'_> {
    fn call(&self, what: &'static str, number: i64, args: [u64; 6]) -> Result<u64, Error> {
        let result = self.remote.call(self.at, number, args)?;
        result.map_err(|e| Error::System(what, e))
    }

    /// Maps all, or nothing.
    pub(crate) fn map(&self, image: &ProcessImage, code: BorrowedFd) -> Result<(), Error> {
        let length = self.place.end - self.place.process;
        let access = (libc::PROT_READ | libc::PROT_WRITE).cast_unsigned();
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_NORESERVE;
        let args = [
            self.place.process,
            length,
            access.into(),
            flags.cast_unsigned().into(),
            u64::MAX,
            0,
        ];
        self.call("reserve memory in the process", libc::SYS_mmap, args)?;
        let mut open = Vec::new();
        let result = self.fill(image, code, &mut open);
        let mut closed = Ok(0);
        for fd in open {
            closed = self.call(
                "close a file of the process",
                libc::SYS_close,
                [fd, 0, 0, 0, 0, 0],
            );
        }
        let result = result.and(closed.map(drop));
        if result.is_err() {
            // The first error is the one to report.
            let _ = self.unmap();
        }
        result
    }

    pub(crate) fn unmap(&self) -> Result<(), Error> {
        let args = [
            self.place.process,
            self.place.end - self.place.process,
            0,
            0,
            0,
            0,
        ];
        self.call("unmap memory of the process", libc::SYS_munmap, args)
            .map(drop)
    }

    fn fill(
        &self,
        image: &ProcessImage,
        code: BorrowedFd,
        open: &mut Vec<u64>,
    ) -> Result<(), Error> {
        let [code_file, file] = self.pass([code, image.file], open)?;
        let entry = ImageArea {
            offset: 0,
            length: self.place.image - self.place.code,
            access: AreaAccess::Code,
        };
        self.area(self.place.code, &entry, code_file)?;
        for area in image.areas {
            self.area(self.place.image, area, file)?;
        }
        self.memory
            .write(self.place.process, &vec![0; PAGE.fit()])?;
        let args = [self.place.process, PAGE, MADV_WIPEONFORK, 0, 0, 0];
        self.call("keep a page from children", libc::SYS_madvise, args)
            .map(drop)
    }

    fn area(&self, base: u64, area: &ImageArea, file: u64) -> Result<(), Error> {
        let (access, shared) = match area.access {
            AreaAccess::Code => (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE),
            AreaAccess::Constants => (libc::PROT_READ, libc::MAP_PRIVATE),
            AreaAccess::Shared => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
        };
        let flags = (shared | libc::MAP_FIXED).cast_unsigned();
        let access = access.cast_unsigned();
        let args = [
            base + area.offset,
            area.length,
            access.into(),
            flags.into(),
            file,
            area.offset,
        ];
        self.call("map into the process", libc::SYS_mmap, args)
            .map(drop)
    }

    /// Passes two files to the process, which has them open afterwards.
    fn pass(&self, files: [BorrowedFd; 2], open: &mut Vec<u64>) -> Result<[u64; 2], Error> {
        let what = "pass a file to the process";
        let page = self.place.process;
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC)
            .cast_unsigned()
            .into();
        let family = libc::AF_UNIX.cast_unsigned().into();
        self.call(
            what,
            libc::SYS_socketpair,
            [family, kind, 0, page + SOCKETS, 0, 0],
        )?;
        let [ours, theirs] = self.numbers(SOCKETS)?;
        open.extend([ours, theirs]);
        self.send(ours, files)
            .map_err(|e| Error::System(what, e.into()))?;
        // struct iovec; struct msghdr, without a name
        let data = [page + BYTE, 1];
        let header = [0, 0, page + DATA, 1, page + CONTROL, CONTROL_LENGTH, 0];
        self.words(DATA, &data)?;
        self.words(HEADER, &header)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT)
            .cast_unsigned()
            .into();
        self.call(
            what,
            libc::SYS_recvmsg,
            [theirs, page + HEADER, flags, 0, 0, 0],
        )?;
        // struct cmsghdr: its length, which tells of fewer files where the process could not have all; then the files
        let head = size_of::<libc::cmsghdr>() as u64;
        let length = self
            .memory
            .read(page + CONTROL, 8)
            .try_into()
            .map_err(|_| Error::Ended)?;
        let passed = self.numbers(CONTROL + head)?;
        let count = u64::from_le_bytes(length).saturating_sub(head) / 4;
        open.extend(passed.iter().take(count.fit()));
        match count {
            2 => Ok(passed),
            _ => Err(Error::System(
                what,
                std::io::Error::from_raw_os_error(libc::EMFILE),
            )),
        }
    }

    fn send(&self, socket: u64, files: [BorrowedFd; 2]) -> rustix::io::Result<()> {
        let pid = Pid::from_raw(self.pid.fit()).ok_or(rustix::io::Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let number: ForeignRawFd = socket.fit();
        let socket = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(
            socket.as_fd(),
            &[IoSlice::new(b"x")],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    fn words(&self, position: u64, words: &[u64]) -> Result<(), Error> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.write(self.place.process + position, &bytes)
    }

    /// Two file numbers in the page.
    fn numbers(&self, position: u64) -> Result<[u64; 2], Error> {
        let bytes = self.memory.read(self.place.process + position, 8);
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| Error::Ended)?;
        let word = u64::from_le_bytes(bytes);
        Ok([word & 0xffff_ffff, word >> 32])
    }
}
