//! One picture in many formats, against the pixels that Pillow reads (`tools/make_pictures.py`).

use std::path::{Path, PathBuf};

use jaguar_compile::samples::{Source, open};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The largest difference of any value from Pillow's.
fn difference(name: &str) -> u8 {
    let path = fixtures().join(name);
    let Source::Pixels { rgb, width, height } = open(&path).unwrap_or_else(|e| panic!("{e}")) else {
        panic!("{name} is a picture");
    };
    let golden = std::fs::read(path.with_file_name(format!("{name}.rgb"))).unwrap();
    let size = [width, height].map(|side| (side as u32).to_le_bytes()).concat();
    assert_eq!(golden[..8], size, "{name}");
    assert_eq!(golden.len() - 8, rgb.len(), "{name}");
    rgb.iter().zip(&golden[8..]).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

#[test]
fn formats_without_loss_are_pillows() {
    for name in [
        "grey.png",
        "grey-alpha.png",
        "rgba.png",
        "palette.png",
        "palette-transparent.png",
        "black-white.png",
        "16-bit-grey.png",
        "16-bit.png",
        "16-bit-rgba.png",
        "grey.bmp",
        "palette.bmp",
        "palette.gif",
        "rgba.webp",
        "grey.pgm",
    ] {
        assert_eq!(difference(name), 0, "{name}");
    }
}

/// Decoders of JPEG round differently.
#[test]
fn jpegs_are_pillows_within_a_little() {
    for (name, most) in [("grey.jpg", 1), ("progressive.jpg", 2), ("cmyk.jpg", 3)] {
        let found = difference(name);
        assert!(found <= most, "{name} is off by {found}");
    }
}

#[test]
fn what_is_not_read_is_named() {
    let error = open(&fixtures().join("refused.tiff")).unwrap_err().to_string();
    assert!(error.contains("Tiff"), "{error}");
}
