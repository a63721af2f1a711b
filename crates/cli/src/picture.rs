//! Inputs from files: images, and `.npy` tensors.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use jaguar_graph::float::Graph;
use jaguar_graph::image_input;
use jaguar_graph::network::{ImageSpec, Network, Shape};

use crate::npy;

/// What a file held.
pub enum Source {
    Pixels { rgb: Vec<u8>, width: usize, height: usize },
    Tensor { shape: Vec<u64>, values: Vec<f32> },
}

/// An input as a query takes it.
pub struct Input {
    pub integers: Vec<i64>,
    /// What is unusual about it.
    pub warning: Option<String>,
}

/// Larger image files are refused unread.
const MAX_FILE: u64 = 1 << 28;

/// What is read, for messages.
const KNOWN: &str = "JPEG, PNG, WebP, BMP, GIF, PNM or .npy";

/// The names that such files have.
const EXTENSIONS: [&str; 11] =
    ["jpg", "jpeg", "png", "webp", "bmp", "gif", "pbm", "pgm", "ppm", "pnm", "npy"];

/// Folders in folders in folders are looked into, but not for ever.
const MAX_DEPTH: usize = 8;

/// How many skipped files are named.
const NAMED: usize = 3;

/// Reads an image (of an animation the first frame) or a tensor, by what the file says it is.
pub fn open(path: &Path) -> Result<Source> {
    let read = || -> Result<Source> {
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            let (shape, values) = npy::read(path)?;
            return Ok(Source::Tensor { shape, values });
        }
        let size = std::fs::metadata(path)?.len();
        ensure!(size <= MAX_FILE, "{size} bytes are too many for an image ({MAX_FILE} at most)");
        let bytes = std::fs::read(path)?;
        let mut reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format()?;
        use ImageFormat::{Bmp, Gif, Jpeg, Png, Pnm, WebP};
        match reader.format() {
            // The decoder would make up the rest.
            Some(Jpeg) => ensure!(jpeg_is_whole(&bytes), "the JPEG file is cut off"),
            Some(Png | WebP | Bmp | Gif | Pnm) => {}
            Some(other) => bail!("a {other:?} file; {KNOWN} is needed"),
            None => bail!("neither an image nor a tensor; {KNOWN} is needed"),
        }
        let mut limits = Limits::default();
        limits.max_image_width = Some(image_input::MAX_SIDE as u32);
        limits.max_image_height = Some(image_input::MAX_SIDE as u32);
        reader.limits(limits.clone());
        let mut decoder = reader.into_decoder()?;
        limits.reserve(decoder.total_bytes())?;
        decoder.set_limits(limits)?;
        // As the camera was held; whoever looks at the picture sees it upright.
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        let image = image.into_rgb8();
        let (width, height) = (image.width() as usize, image.height() as usize);
        Ok(Source::Pixels { rgb: image.into_raw(), width, height })
    };
    read().with_context(|| path.display().to_string())
}

/// Whether a JPEG file reaches its end-of-image marker (ITU-T T.81, annex B).
fn jpeg_is_whole(mut file: &[u8]) -> bool {
    loop {
        // Within a scan, 0xff is a marker unless 0 or a restart (0xd0 to 0xd7) follows; elsewhere nothing
        // precedes one.
        let Some(at) = file.windows(2).position(|w| w[0] == 0xff && !matches!(w[1], 0 | 0xd0..=0xd7 | 0xff))
        else {
            return false;
        };
        let marker = file[at + 1];
        file = &file[at + 2..];
        match marker {
            0xd9 => return true,
            // Start of image and 'temporary' stand alone, all others have a length that includes itself.
            0xd8 | 0x01 => {}
            _ => {
                let skip = file.first_chunk().map(|l| usize::from(u16::from_be_bytes(*l)));
                let Some(rest) = skip.and_then(|n| file.get(n..)) else { return false };
                file = rest;
            }
        }
    }
}

/// How the ONNX model lays out its input, for tensors from files.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Its dimensions without the batch; empty: as the network's shape says.
    pub dims: &'a [usize],
    /// Whether they are `[H, W, C]`.
    pub channels_last: bool,
}

impl<'a> Axes<'a> {
    pub fn of_network(network: &'a Network) -> Self {
        Self { dims: &network.input.layout_dims, channels_last: network.input.channels_last }
    }

    pub fn of_graph(graph: &'a Graph) -> Self {
        Self { dims: &graph.layout_dims, channels_last: graph.channels_last }
    }
}

/// The shapes that a tensor file may have: the model's own, with the batch or without.
fn layouts(shape: Shape, axes: Axes<'_>) -> Vec<Vec<u64>> {
    let [c, h, w] = shape.map(|d| d as u64);
    let mut layouts = vec![axes.dims.iter().map(|&d| d as u64).collect()];
    layouts.push(if axes.channels_last { vec![h, w, c] } else { vec![c, h, w] });
    if [h, w] == [1, 1] {
        layouts.push(vec![c]);
    }
    layouts.retain(|dims: &Vec<u64>| !dims.is_empty());
    layouts.dedup();
    let with_batch: Vec<Vec<u64>> = layouts.iter().map(|l| [&[1], &l[..]].concat()).collect();
    layouts.extend(with_batch);
    layouts
}

impl Source {
    /// The network's input tensor `[C, H, W]`.
    pub fn tensor(&self, spec: &ImageSpec, shape: Shape, axes: Axes<'_>) -> Result<Vec<f32>> {
        match self {
            Source::Pixels { rgb, width, height } => {
                Ok(image_input::tensor(spec, shape, rgb, *width, *height)?)
            }
            Source::Tensor { shape: found, values } => {
                let layouts = layouts(shape, axes);
                if !layouts.contains(found) {
                    let layouts: Vec<String> = layouts.iter().map(|l| format!("{l:?}")).collect();
                    bail!("the tensor's shape is {found:?}; the network takes {}", layouts.join(" or "));
                }
                if !axes.channels_last {
                    return Ok(values.clone());
                }
                let [c, h, w] = shape;
                Ok((0..c * h * w).map(|i| values[i % (h * w) * c + i / (h * w)]).collect())
            }
        }
    }

    /// The network's input as the integers that a query takes.
    pub fn input(&self, network: &Network) -> Result<Input> {
        let (input, bits) = (&network.input, network.activation_bits);
        let tensor = self.tensor(&input.image, network.nodes[0].shape, Axes::of_network(network))?;
        Ok(Input {
            integers: input.quantise(&tensor, bits),
            warning: input.unusual(&tensor, bits).map(|u| u.to_string()),
        })
    }
}

/// The images and tensors among `paths`: files as they are, folders by their content and that of the folders in them,
/// in the order of their names. What is skipped is named on standard error.
pub fn collect(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(folder(path)?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// The images and tensors in a folder and the folders in it.
pub fn folder(path: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    walk(path, 0, &mut BTreeSet::new(), &mut found, &mut skipped)?;
    found.sort();
    skipped.sort();
    ensure!(!found.is_empty(), "{}: no {KNOWN} file in this folder", path.display());
    if let Some(note) = skipped_in_words(path, &skipped) {
        eprintln!("note: {note}");
    }
    Ok(found)
}

fn skipped_in_words(folder: &Path, skipped: &[PathBuf]) -> Option<String> {
    let name = |p: &PathBuf| p.strip_prefix(folder).unwrap_or(p).display().to_string();
    let names: Vec<String> = skipped.iter().take(NAMED).map(name).collect();
    let more = if skipped.len() > NAMED { ", ..." } else { "" };
    let files = if skipped.len() == 1 { "1 file is" } else { &format!("{} files are", skipped.len()) };
    let text = format!("{}: {files} skipped, being no {KNOWN}: {}{more}", folder.display(), names.join(", "));
    (!skipped.is_empty()).then_some(text)
}

fn walk(
    path: &Path,
    depth: usize,
    seen: &mut BTreeSet<PathBuf>,
    found: &mut Vec<PathBuf>,
    skipped: &mut Vec<PathBuf>,
) -> Result<()> {
    let at = || path.display().to_string();
    // A link may lead back up.
    if depth > MAX_DEPTH || !seen.insert(path.canonicalize().with_context(at)?) {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).with_context(at)? {
        let entry = entry.with_context(at)?;
        // What systems leave in every folder is nobody's picture.
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let file = entry.path();
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if file.is_dir() {
            walk(&file, depth + 1, seen, found, skipped)?;
        } else if EXTENSIONS.iter().any(|k| extension.eq_ignore_ascii_case(k)) {
            found.push(file);
        } else {
            skipped.push(file);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jpegs_are_whole_or_cut() {
        let photo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/photo.jpg");
        let whole = std::fs::read(photo).unwrap();
        assert!(jpeg_is_whole(&whole));
        // What cameras append behind the end does no harm.
        assert!(jpeg_is_whole(&[&whole[..], b"more"].concat()));
        for length in (0..whole.len() - 1).step_by(131).chain([whole.len() - 2, whole.len() - 1]) {
            assert!(!jpeg_is_whole(&whole[..length]), "cut to {length}");
        }
        // A preview within a segment has an end of its own, which is not the picture's.
        let preview = b"\xff\xe1\x00\x08\xff\xd8\xff\xda\xff\xd9";
        let with_preview = |end: usize| [&whole[..2], preview, &whole[2..end]].concat();
        assert!(jpeg_is_whole(&with_preview(whole.len())));
        assert!(!jpeg_is_whole(&with_preview(whole.len() - 2)));
        assert!(!jpeg_is_whole(&with_preview(2)));
    }

    #[test]
    fn a_vector_has_its_own_layout() {
        let natural = Axes { dims: &[], channels_last: false };
        let flat = Axes { dims: &[7, 112], channels_last: false };
        assert!(layouts([7, 112, 1], flat).contains(&vec![1, 7, 112]));
        assert_eq!(
            layouts([784, 1, 1], natural),
            [vec![784, 1, 1], vec![784], vec![1, 784, 1, 1], vec![1, 784]]
        );
        assert_eq!(layouts([3, 8, 9], natural), [vec![3, 8, 9], vec![1, 3, 8, 9]]);
        let last = Axes { dims: &[8, 9, 3], channels_last: true };
        assert_eq!(layouts([3, 8, 9], last), [vec![8, 9, 3], vec![1, 8, 9, 3]]);
    }

    #[test]
    fn folders_that_lead_back_end() {
        let folder = std::env::temp_dir().join(format!("jaguar-loop-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/x.PNG"), b"").unwrap();
        std::fs::write(folder.join("a/notes.txt"), b"").unwrap();
        std::fs::write(folder.join(".hidden"), b"").unwrap();
        #[cfg(unix)]
        let _ = std::os::unix::fs::symlink(&folder, folder.join("a/up"));
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        let walked = walk(&folder, 0, &mut BTreeSet::new(), &mut found, &mut skipped);
        let note = skipped_in_words(&folder, &skipped);
        std::fs::remove_dir_all(&folder).unwrap();
        walked.unwrap();
        assert_eq!(found, [folder.join("a/x.PNG")]);
        assert_eq!(skipped, [folder.join("a/notes.txt")]);
        assert!(note.is_some_and(|n| n.contains("1 file is skipped") && n.contains("a/notes.txt")));
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("jaguar-picture-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn pixels(path: &Path) -> image::RgbImage {
        match open(path).unwrap() {
            Source::Pixels { rgb, width, height } => {
                image::RgbImage::from_raw(width as u32, height as u32, rgb).unwrap()
            }
            Source::Tensor { .. } => panic!("a picture"),
        }
    }

    /// The orientation that a camera wrote (EXIF, tag 0x112) is applied: all eight of them.
    #[test]
    fn pictures_are_upright() {
        let photo = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/photo.jpg")).unwrap();
        let folder = folder("upright");
        let path = folder.join("photo.jpg");
        std::fs::write(&path, &photo).unwrap();
        let plain = pixels(&path);
        use image::imageops::{flip_horizontal, flip_vertical, rotate90, rotate180, rotate270};
        let upright: [image::RgbImage; 8] = [
            plain.clone(),
            flip_horizontal(&plain),
            rotate180(&plain),
            flip_vertical(&plain),
            flip_horizontal(&rotate90(&plain)),
            rotate90(&plain),
            flip_horizontal(&rotate270(&plain)),
            rotate270(&plain),
        ];
        let found: Vec<bool> = (1u8..)
            .zip(&upright)
            .map(|(orientation, upright)| {
                // Little-endian, one entry: tag, type short, one of them, its value; no further directory.
                let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
                exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
                let length = (exif.len() as u16 + 2).to_be_bytes();
                let segment = [&b"\xff\xe1"[..], &length, &exif].concat();
                std::fs::write(&path, [&photo[..2], &segment, &photo[2..]].concat()).unwrap();
                pixels(&path) == *upright
            })
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [true; 8]);
    }

    /// Cut off or with flipped bytes, a picture of any format is an error or a picture, but never a panic.
    #[test]
    fn formats_and_damage() {
        let folder = folder("formats");
        let drawing = image::RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8 * 6, y as u8 * 8, 9]));
        let mut refused = Vec::new();
        for (name, exact) in
            [("x.png", true), ("x.webp", true), ("x.bmp", true), ("x.ppm", true), ("x.gif", false)]
        {
            let path = folder.join(name);
            drawing.save(&path).unwrap();
            let found = pixels(&path);
            assert_eq!(found.dimensions(), (40, 30), "{name}");
            assert!(!exact || found == drawing, "{name}");
            let whole = std::fs::read(&path).unwrap();
            for cut in [4, 10, 20, 30, whole.len() / 2] {
                std::fs::write(&path, &whole[..cut]).unwrap();
                if open(&path).is_ok() {
                    refused.push(format!("{name} cut to {cut} of {}", whole.len()));
                }
            }
            for at in (0..whole.len()).step_by(whole.len().div_ceil(200)) {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x55;
                std::fs::write(&path, damaged).unwrap();
                let _ = open(&path);
            }
        }
        // Files that claim pictures of a billion pixels are refused unread.
        let mut bomb = b"BM".to_vec();
        bomb.extend([0; 8]);
        bomb.extend([54, 0, 0, 0, 40, 0, 0, 0]);
        bomb.extend(32_768u32.to_le_bytes());
        bomb.extend(32_768u32.to_le_bytes());
        bomb.extend([1, 0, 24, 0]);
        bomb.extend([0; 24]);
        for (name, bytes) in [("bomb.bmp", bomb), ("bomb.ppm", b"P6 32768 32768 255\n".to_vec())] {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            if open(&path).is_ok() {
                refused.push(name.to_owned());
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.is_empty(), "taken: {refused:?}");
    }
}
