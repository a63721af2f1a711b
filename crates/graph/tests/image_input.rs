//! Images to tensors, against Pillow's resizing (`fixtures/make.py`).
use jaguar_graph::image_input::{ImageError, tensor};
use jaguar_graph::network::{ImageSpec, Resize};

fn spec(resize: Resize) -> ImageSpec {
    ImageSpec { resize, bgr: false, mean: vec![], factor: vec![] }
}

#[test]
fn resizing_is_pillows() {
    let data = include_bytes!("fixtures/resized.rgb");
    let mut rest = &data[..];
    let mut records = 0;
    while !rest.is_empty() {
        let (header, after) = rest.split_at(16);
        let sizes = header.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b) as usize);
        let [w, h, new_w, new_h] = sizes.collect::<Vec<_>>().try_into().expect("four sizes");
        let (pixels, after) = after.split_at(w * h * 3);
        let (expected, after) = after.split_at(new_w * new_h * 3);
        rest = after;
        let found = tensor(&spec(Resize::Exact), [3, new_h, new_w], pixels, w, h).expect("resizes");
        let mut different = 0;
        for (i, &expected) in expected.iter().enumerate() {
            let (pixel, channel) = (i / 3, i % 3);
            let error = (found[channel * new_w * new_h + pixel] - f32::from(expected)).abs();
            assert!(error <= 1.0, "{w}x{h} to {new_w}x{new_h}: pixel {pixel} is off by {error}");
            different += usize::from(error > 0.0);
        }
        // Pillow's fixed point sends exact halves either way; 20 to 27 pixels has many.
        assert!(different * 20 <= expected.len(), "{different} of {} differ", expected.len());
        records += 1;
    }
    assert_eq!(records, 5);
}

#[test]
fn the_centre_is_cut_out_and_channels_are_ordered() {
    // 6 wide, 4 high; red says the column, green the row.
    let pixels: Vec<u8> = (0..4u8).flat_map(|y| (0..6u8).flat_map(move |x| [x, y, 100])).collect();
    let spec = ImageSpec {
        bgr: true,
        mean: vec![100.0, 1.0, 0.0],
        factor: vec![1.0, 1.0, 0.5],
        ..spec(Resize::Shorter(4))
    };
    let found = tensor(&spec, [3, 2, 4], &pixels, 6, 4).expect("fits");
    let expected =
        [[0.0; 8], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0], [0.5, 1.0, 1.5, 2.0, 0.5, 1.0, 1.5, 2.0]];
    assert_eq!(found, expected.concat());
}

#[test]
fn grey_is_luma() {
    let pixels = [255, 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255];
    let found = tensor(&spec(Resize::Exact), [1, 2, 2], &pixels, 2, 2).expect("fits");
    assert_eq!(found, [255.0, 76.0, 150.0, 29.0]);
}

#[test]
fn sizes_are_checked() {
    let run = |resize, shape, bytes: usize, w, h| tensor(&spec(resize), shape, &vec![0; bytes], w, h);
    assert_eq!(run(Resize::Exact, [2, 4, 4], 12, 2, 2), Err(ImageError::Channels(2)));
    let length = ImageError::Length { width: 2, height: 2, expected: 12, found: 11 };
    assert_eq!(run(Resize::Exact, [3, 4, 4], 11, 2, 2), Err(length));
    for (w, h) in [(0, 2), (usize::MAX, usize::MAX), (1 << 15, 1 << 15)] {
        assert!(matches!(run(Resize::Exact, [3, 4, 4], 12, w, h), Err(ImageError::Size { .. })));
    }
    assert!(matches!(run(Resize::Shorter(3), [3, 4, 4], 12, 2, 2), Err(ImageError::TooSmall { .. })));
    // A thin strip would become a very long one.
    assert!(matches!(run(Resize::Shorter(3000), [3, 4, 4], 300, 1, 100), Err(ImageError::Size { .. })));
    assert!(matches!(run(Resize::Shorter(0), [3, 4, 4], 12, 2, 2), Err(ImageError::Size { .. })));
}
