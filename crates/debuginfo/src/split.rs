//! Debugging information that the compiler split off (`-gsplit-dwarf`): into a `.dwo` file for each
//! object file, or with all of them in one package (`.dwp`).
//!
//! The program keeps a skeleton of each such unit: the name of the file, a number that both have
//! (`dwo_id`), addresses, and the line table. Here the unit of the other file takes the skeleton's
//! location and number, so that entries are named as in a program that was not split. Type units of
//! these files follow behind the program's own units.
//!
//! A unit whose file is missing, or is of another build, stays a skeleton: its lines are known, its
//! entries are not.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{EndianSlice, LittleEndian, SectionId, UnitHeader, UnitType};
use spile_cast::Cast;

use crate::find::SearchPaths;
use crate::image::Image;
use crate::unit::{R, SectionLoader, Unit};

/// Units whose entries are in files that were not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingUnits {
    /// The number of these units.
    pub missing: usize,
    /// The number of units that were split off.
    pub split: usize,
    /// Whether no unit at all has entries.
    pub every_unit: bool,
    /// The file of the first one.
    pub file: PathBuf,
    /// Why it was not used: it is missing, damaged or of another build.
    pub why: String,
    /// Where a package of all files is looked for.
    pub package: PathBuf,
}

impl fmt::Display for MissingUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, package) = (self.file.display(), self.package.display());
        write!(
            f,
            "the debugging information of {} of {} units is split off to files that spile cannot use: \
             {file} {}; build the program and these files together and leave them there, copy them beside \
             the program, or pack them with `llvm-dwp -e PROGRAM -o {package}`",
            self.missing, self.split, self.why
        )
    }
}

/// The files that a program's DWARF was split off to.
#[derive(Default)]
pub(crate) struct SplitFiles {
    // Point into `loaded`; declared first, so dropped first.
    sources: Vec<SplitSource>,
    /// For each unit its source's number plus one, or 0 if it is the program's own.
    source_of_unit: Vec<u32>,
    /// The headers of the skeletons whose location was taken.
    skeletons: HashMap<u32, UnitHeader<R>>,
    loaded: Vec<SectionLoader>,
    /// Units that were not found, and how many were split off.
    missing: Option<MissingUnits>,
}

/// What gives the units of one `.dwo` file, or one unit of a package.
struct SplitSource {
    dwarf: gimli::Dwarf<R>,
    /// Which of the loaded files it is in.
    file: usize,
    /// Whether that is a package.
    packed: bool,
    /// The units with numbers.
    units: Vec<u32>,
}

/// A unit that was split off.
struct Skeleton {
    unit: u32,
    id: u64,
    name: PathBuf,
    folder: PathBuf,
}

/// A `.dwo` file: its units by their `dwo_id`.
struct DwoFile {
    source: usize,
    units: HashMap<u64, UnitHeader<R>>,
}

impl SplitFiles {
    /// Finds the files of the split units among `headers`, and puts their units there. `None` if
    /// nothing was split off.
    pub(crate) fn load(
        dwarf: &gimli::Dwarf<R>,
        headers: &mut Vec<UnitHeader<R>>,
        (main, debug): (&Image, &Image),
        search: &SearchPaths,
    ) -> Option<SplitFiles> {
        let wanted = skeletons(dwarf, headers);
        if wanted.is_empty() {
            return None;
        }
        let unit_count = headers.len();
        let mut loader = Loader {
            dwarf,
            files: SplitFiles {
                source_of_unit: vec![0; unit_count],
                ..SplitFiles::default()
            },
            headers,
            types: HashSet::new(),
            opened: HashMap::new(),
        };
        let packages = search.packages_of(main, debug);
        let mut lost: Vec<(PathBuf, String)> = Vec::new();
        // The reason why a package cannot be read comes before those of single files.
        let mut unreadable = None;
        let package = packages.iter().filter(|p| p.exists()).find_map(|path| {
            let opened = loader.package(path);
            if let Err(why) = &opened {
                unreadable.get_or_insert((path.clone(), why.clone()));
            }
            opened.ok()
        });
        for skeleton in &wanted {
            let packed = package.as_ref();
            if packed.is_some_and(|(p, file)| loader.packed(p, *file, skeleton)) {
                continue;
            }
            let paths = search.split_paths(main, debug, &skeleton.folder, &skeleton.name);
            if let Err(why) = loader.dwo(&paths, skeleton) {
                lost.push(why);
            }
        }
        let missing = lost.len();
        let first = unreadable.into_iter().chain(lost).next();
        loader.files.missing = first
            .filter(|_| missing > 0)
            .map(|(file, why)| MissingUnits {
                missing,
                split: wanted.len(),
                every_unit: missing == unit_count,
                file,
                why,
                package: packages.into_iter().next().unwrap_or_default(),
            });
        Some(loader.files)
    }

    /// The DWARF that a unit's forms belong to, unless it is the program's own.
    pub(crate) fn source(&self, unit: u32) -> Option<&gimli::Dwarf<R>> {
        Some(&self.split_source(unit)?.dwarf)
    }

    fn split_source(&self, unit: u32) -> Option<&SplitSource> {
        let number = self.source_of_unit.get(unit as usize)?.checked_sub(1)?;
        self.sources.get(number as usize)
    }

    /// The skeleton of a unit that was split off.
    pub(crate) fn skeleton(&self, unit: u32) -> Option<UnitHeader<R>> {
        self.skeletons.get(&unit).copied()
    }

    /// The units of the same file, for references between them.
    pub(crate) fn neighbours(&self, unit: u32) -> &[u32] {
        self.split_source(unit).map_or(&[], |s| &s.units)
    }

    /// Releases the memory of a unit: that of its file, or of its part of a package.
    pub(crate) fn release(&self, unit: u32) {
        let Some(source) = self.split_source(unit) else {
            return;
        };
        match self.loaded.get(source.file) {
            Some(file) if source.packed => {
                file.release(gimli::Section::reader(&source.dwarf.debug_info).slice());
            }
            Some(file) => file.release_all(),
            None => {}
        }
    }

    pub(crate) fn missing(&self) -> Option<&MissingUnits> {
        self.missing.as_ref()
    }

    /// Numbers that change when one of the files does, or is no more missing.
    pub(crate) fn stamp(&self) -> Vec<u8> {
        let files = self.loaded.iter().flat_map(|f| f.image.state());
        let units = self.source_of_unit.iter().map(|n| u64::from(*n));
        files.chain(units).flat_map(u64::to_le_bytes).collect()
    }

    /// Size of all entries in bytes.
    pub(crate) fn size(&self) -> usize {
        let len = |s: &SplitSource| gimli::Section::reader(&s.dwarf.debug_info).slice().len();
        self.sources.iter().map(len).sum()
    }
}

/// The units that are skeletons.
fn skeletons(dwarf: &gimli::Dwarf<R>, headers: &[UnitHeader<R>]) -> Vec<Skeleton> {
    // Before DWARF 5 only the root entry says it; programs that were not split lack this section.
    let indexed = !gimli::Section::reader(&dwarf.debug_addr).slice().is_empty();
    let mut wanted = Vec::new();
    for (unit, header) in (0..).zip(headers) {
        let may_be = match header.type_() {
            UnitType::Skeleton(_) => true,
            UnitType::Compilation => indexed && header.version() < 5,
            _ => false,
        };
        if !may_be {
            continue;
        }
        let Ok(parsed) = dwarf.unit(*header) else {
            continue;
        };
        let name = parsed.dwo_name().ok().flatten();
        let name = name.and_then(|n| dwarf.attr_string(&parsed, n).ok());
        if let (Some(id), Some(name)) = (parsed.dwo_id, name) {
            wanted.push(Skeleton {
                unit,
                id: id.0,
                name: path(name),
                folder: parsed.comp_dir.map(path).unwrap_or_default(),
            });
        }
    }
    wanted
}

fn path(text: R) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::OsStr::from_bytes(text.slice()).into()
}

struct Loader<'a> {
    dwarf: &'a gimli::Dwarf<R>,
    files: SplitFiles,
    headers: &'a mut Vec<UnitHeader<R>>,
    /// Signatures of type units that have numbers.
    types: HashSet<u64>,
    /// Files that were opened, or why that failed.
    opened: HashMap<PathBuf, Result<DwoFile, String>>,
}

impl Loader<'_> {
    /// Opens a package, and takes its type units.
    fn package(&mut self, path: &Path) -> Result<(gimli::DwarfPackage<R>, usize), String> {
        let image = Image::open(path).map_err(|e| format!("cannot be read: {}", e.reason))?;
        let mut file = SectionLoader::new(&Arc::new(image));
        let empty = EndianSlice::new(&[][..], LittleEndian);
        let load = |id: SectionId| -> Result<R, gimli::Error> {
            Ok(id.dwo_name().map_or(empty, |name| file.load(name)))
        };
        let package =
            gimli::DwarfPackage::load(load, empty).map_err(|e| format!("cannot be read: {e}"))?;
        self.files.loaded.push(file);
        let file = self.files.loaded.len() - 1;
        for row in 1..=package.tu_index.unit_count() {
            if let Ok(dwarf) = package.tu_sections(row, self.dwarf) {
                let source = self.add(dwarf, file, true);
                self.number_types(source);
            }
        }
        Ok((package, file))
    }

    /// Takes a unit of a package.
    fn packed(
        &mut self,
        package: &gimli::DwarfPackage<R>,
        file: usize,
        skeleton: &Skeleton,
    ) -> bool {
        let unit = package.find_cu(gimli::DwoId(skeleton.id), self.dwarf);
        let Ok(Some(dwarf)) = unit else {
            return false;
        };
        let Some(header) = split_unit(&dwarf, skeleton.id) else {
            return false;
        };
        let source = self.add(dwarf, file, true);
        self.replace(skeleton.unit, header, source);
        true
    }

    /// Takes a unit of a `.dwo` file at one of these paths.
    fn dwo(&mut self, paths: &[PathBuf], skeleton: &Skeleton) -> Result<(), (PathBuf, String)> {
        let mut why = None;
        for path in paths {
            if !self.opened.contains_key(path) {
                if !path.exists() {
                    continue;
                }
                let opened = self.open(path);
                self.opened.insert(path.clone(), opened);
            }
            let refused = match self.opened.get(path) {
                Some(Ok(file)) => match file.units.get(&skeleton.id) {
                    Some(header) => {
                        let (header, source) = (*header, file.source);
                        self.replace(skeleton.unit, header, source);
                        return Ok(());
                    }
                    None => format!("is of another build (dwo_id {:#018x} wanted)", skeleton.id),
                },
                Some(Err(e)) => e.clone(),
                None => continue,
            };
            why.get_or_insert((path.clone(), refused));
        }
        let first = paths.first().cloned().unwrap_or_default();
        Err(why.unwrap_or_else(|| (first, "does not exist".into())))
    }

    fn open(&mut self, path: &Path) -> Result<DwoFile, String> {
        let image = Image::open(path).map_err(|e| e.reason)?;
        let mut file = SectionLoader::new(&Arc::new(image));
        let empty = EndianSlice::new(&[][..], LittleEndian);
        let load = |id: SectionId| -> Result<R, gimli::Error> {
            Ok(id.dwo_name().map_or(empty, |name| file.load(name)))
        };
        let mut dwarf = gimli::Dwarf::load(load).map_err(|e| e.to_string())?;
        dwarf.make_dwo(self.dwarf);
        let units = split_units(&dwarf).collect();
        self.files.loaded.push(file);
        let file = self.files.loaded.len() - 1;
        let source = self.add(dwarf, file, false);
        self.number_types(source);
        // Reading headers made the kernel map the pages around them.
        self.files.loaded[file].release_all();
        Ok(DwoFile { source, units })
    }

    fn add(&mut self, dwarf: gimli::Dwarf<R>, file: usize, packed: bool) -> usize {
        self.files.sources.push(SplitSource {
            dwarf,
            file,
            packed,
            units: Vec::new(),
        });
        self.files.sources.len() - 1
    }

    /// Gives numbers to the type units of a source that no other one has.
    fn number_types(&mut self, source: usize) {
        let dwarf = &self.files.sources[source].dwarf;
        let (mut new, mut old) = (dwarf.units(), dwarf.type_units());
        let new = std::iter::from_fn(|| new.next().ok().flatten());
        let old = std::iter::from_fn(|| old.next().ok().flatten());
        let mut type_units: Vec<UnitHeader<R>> = Vec::new();
        for header in new.chain(old) {
            if let UnitType::Type { type_signature, .. }
            | UnitType::SplitType { type_signature, .. } = header.type_()
                && self.types.insert(type_signature.0)
            {
                type_units.push(header);
            }
        }
        for header in type_units {
            let unit = self.headers.len().fit::<u32>();
            self.headers.push(header);
            self.files.source_of_unit.push(source.fit::<u32>() + 1);
            self.files.sources[source].units.push(unit);
        }
    }

    /// Puts a unit in the location of its skeleton.
    fn replace(&mut self, unit: u32, header: UnitHeader<R>, source: usize) {
        let skeleton = std::mem::replace(&mut self.headers[unit as usize], header);
        self.files.skeletons.insert(unit, skeleton);
        self.files.source_of_unit[unit as usize] = source.fit::<u32>() + 1;
        self.files.sources[source].units.push(unit);
    }
}

/// The compilation units of a file, by `dwo_id`.
fn split_units(dwarf: &gimli::Dwarf<R>) -> impl Iterator<Item = (u64, UnitHeader<R>)> {
    let mut units = dwarf.units();
    let next = move || units.next().ok().flatten();
    std::iter::from_fn(next).filter_map(|header| match header.type_() {
        UnitType::SplitCompilation(id) => Some((id.0, header)),
        UnitType::Compilation => Some((dwarf.unit(header).ok()?.dwo_id?.0, header)),
        _ => None,
    })
}

fn split_unit(dwarf: &gimli::Dwarf<R>, id: u64) -> Option<UnitHeader<R>> {
    split_units(dwarf).find(|u| u.0 == id).map(|u| u.1)
}

/// Completes a unit by what only its skeleton has.
pub(crate) fn complete(unit: &mut Unit, skeleton: &Unit) {
    unit.copy_relocated_attributes(skeleton);
    unit.line_program.clone_from(&skeleton.line_program);
    unit.comp_dir = skeleton.comp_dir.or(unit.comp_dir);
    unit.name = unit.name.or(skeleton.name);
}
