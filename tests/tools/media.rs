//! Images: valid, oversized, damaged, and files with a misleading name or header.

use std::fs;
use std::io::Cursor;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::gif::GifEncoder;
use image::codecs::jpeg::JpegEncoder;
use image::{
    DynamicImage, Frame, ImageEncoder, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage, imageops,
};
use outlast::tools::ToolOutcome;
use outlast::transcript::Block;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::bench::{Bench, assert_fails_with, text};

/// Largest picture that the service accepts, in bytes of base64.
const ENCODED_MAX: usize = 5 << 20;

const KINDS: [(ImageFormat, &str); 4] = [
    (ImageFormat::Png, "image/png"),
    (ImageFormat::Jpeg, "image/jpeg"),
    (ImageFormat::Gif, "image/gif"),
    (ImageFormat::WebP, "image/webp"),
];

/// Red above, blue below.
fn flag(width: u32, height: u32) -> DynamicImage {
    let colour = |y| if y < height / 2 { Rgb([255, 0, 0]) } else { Rgb([0, 0, 255]) };
    RgbImage::from_fn(width, height, |_, y| colour(y)).into()
}

/// Nothing packs it, whatever its transparency.
fn noise(width: u32, height: u32, alpha: u8) -> RgbaImage {
    let mut state = 1_u32;
    RgbaImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [_, red, green, blue] = state.to_le_bytes();
        Rgba([red, green, blue, alpha])
    })
}

fn packed(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut data = Vec::new();
    picture.write_to(&mut Cursor::new(&mut data), format).expect("a sound picture");
    data
}

struct Shown {
    media_type: String,
    data: Vec<u8>,
    encoded: usize,
    /// The text beside the picture.
    remark: Option<String>,
}

impl Shown {
    fn picture(&self) -> DynamicImage {
        let format = ImageFormat::from_mime_type(&self.media_type).expect("a known type");
        image::load_from_memory_with_format(&self.data, format).expect("a sound picture")
    }

    fn size(&self) -> (u32, u32) {
        (self.picture().width(), self.picture().height())
    }
}

#[track_caller]
fn shown(outcome: &ToolOutcome) -> Shown {
    let (source, remark) = match outcome.content.as_slice() {
        [Block::Image { source }] => (source, None),
        [Block::Image { source }, Block::Text { text }] => (source, Some(text.clone())),
        other => panic!("no picture: {other:?}"),
    };
    assert_eq!(source["type"], "base64");
    let encoded = source["data"].as_str().expect("base64");
    assert!(encoded.len() <= ENCODED_MAX, "{} bytes", encoded.len());
    let data = STANDARD.decode(encoded).expect("base64");
    let media_type = source["media_type"].as_str().expect("a type").to_owned();
    Shown { media_type, data, encoded: encoded.len(), remark }
}

#[tokio::test]
async fn an_image_within_limits_is_sent_unchanged_under_any_name() {
    let bench = Bench::open();
    for (format, media_type) in KINDS {
        let data = packed(&flag(40, 30), format);
        bench.file("picture.txt", &data);
        let shown = shown(&bench.read("picture.txt").await);
        assert_eq!((shown.media_type.as_str(), &shown.data), (media_type, &data));
        assert_eq!(shown.remark, None);
    }
}

#[tokio::test]
async fn an_image_side_over_two_thousand_pixels_is_scaled() {
    let bench = Bench::open();
    let mut fits = packed(&flag(2_000, 10), ImageFormat::Png);
    fits.extend_from_slice(b"what an encoder would not write");
    bench.file("fits.png", &fits);
    assert_eq!(shown(&bench.read("fits.png").await).data, fits);
    for (format, _) in KINDS {
        bench.file("wide", packed(&flag(2_500, 100), format));
        let outcome = bench.read("wide").await;
        let wide = shown(&outcome);
        assert_eq!(wide.size(), (2_000, 80), "{format:?}");
        let remark = "(shown at 2000x80 pixels; the file has 2500x100)";
        assert_eq!(wide.remark.as_deref(), Some(remark));
        assert_eq!(outcome.detail["file"]["dimensions"]["width"], 2_500);
        let [top, bottom] = [5, 75].map(|y| wide.picture().to_rgb8().get_pixel(1_000, y).0);
        assert!(top[0] > 200 && top[2] < 60, "{format:?}: {top:?}");
        assert!(bottom[2] > 200 && bottom[0] < 60, "{format:?}: {bottom:?}");
    }
    bench.file("tall", packed(&flag(3, 9_000), ImageFormat::Png));
    assert_eq!(shown(&bench.read("tall").await).size(), (1, 2_000));
}

#[tokio::test]
async fn a_scaled_photograph_stays_upright() {
    // The smallest EXIF that says: turn right by a quarter.
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let mut data = Vec::new();
    let mut encoder = JpegEncoder::new(&mut data);
    encoder.set_exif_metadata(exif.to_vec()).expect("JPEG has room for it");
    flag(2_500, 250).write_with_encoder(encoder).expect("a sound picture");
    let bench = Bench::open();
    bench.file("photo.jpg", &data);
    let photo = shown(&bench.read("photo.jpg").await);
    assert_eq!((photo.media_type.as_str(), photo.size()), ("image/jpeg", (200, 2_000)));
    assert_eq!(photo.remark.unwrap(), "(shown at 200x2000 pixels; the file has 250x2500)");
}

#[tokio::test]
async fn an_image_over_five_megabytes_of_base64_is_recompressed() {
    let bench = Bench::open();
    let mut data = packed(&flag(100, 100), ImageFormat::Png);
    // Decoders stop at a picture's end.
    data.resize(ENCODED_MAX / 4 * 3, 0);
    bench.file("fits.png", &data);
    assert_eq!(shown(&bench.read("fits.png").await).encoded, ENCODED_MAX);
    data.push(0);
    bench.file("large.png", &data);
    let large = shown(&bench.read("large.png").await);
    assert!(large.encoded < 10_000, "{}", large.encoded);
    assert_eq!((large.size(), large.remark), ((100, 100), None));
}

#[tokio::test]
async fn an_incompressible_image_becomes_a_jpeg_on_white() {
    let bench = Bench::open();
    let invisible = DynamicImage::from(noise(1_400, 1_000, 0));
    bench.file("noise.png", packed(&invisible, ImageFormat::Png));
    let noise = shown(&bench.read("noise.png").await);
    assert_eq!((noise.media_type.as_str(), noise.size()), ("image/jpeg", (1_400, 1_000)));
    assert_eq!(noise.picture().to_rgb8().get_pixel(700, 500).0, [255, 255, 255]);
}

#[tokio::test]
async fn an_oversized_animation_becomes_its_first_frame() {
    let mut data = Vec::new();
    let mut encoder = GifEncoder::new(&mut data);
    for picture in [flag(20, 20), DynamicImage::from(noise(20, 20, 255))] {
        encoder.encode_frame(Frame::new(picture.to_rgba8())).expect("a sound frame");
    }
    drop(encoder);
    let bench = Bench::open();
    bench.file("moving.gif", &data);
    let moving = shown(&bench.read("moving.gif").await);
    assert_eq!(moving.media_type, "image/png");
    assert_eq!(moving.picture().to_rgb8().get_pixel(10, 2).0, [255, 0, 0]);
    assert_eq!(moving.remark.unwrap(), "(only the first frame of an animation is shown)");
}

#[tokio::test]
async fn an_animation_of_another_kind_is_stopped_too() {
    let still = packed(&flag(20, 20), ImageFormat::WebP);
    let chunk = |name: &str, data: &[u8]| {
        let length = u32::try_from(data.len()).expect("a short one").to_le_bytes();
        [name.as_bytes(), &length, data].concat()
    };
    let frame = [&[0, 0, 0, 0, 0, 0, 19, 0, 0, 19, 0, 0, 100, 0, 0, 0], &still[12..]].concat();
    let parts = [
        b"WEBP".to_vec(),
        chunk("VP8X", &[0x02, 0, 0, 0, 19, 0, 0, 19, 0, 0]),
        chunk("ANIM", &[0; 6]),
        chunk("ANMF", &frame),
        chunk("ANMF", &frame),
    ];
    let bench = Bench::open();
    bench.file("moving.webp", chunk("RIFF", &parts.concat()));
    let moving = shown(&bench.read("moving.webp").await);
    assert_eq!((moving.media_type.as_str(), moving.size()), ("image/png", (20, 20)));
    assert!(moving.remark.unwrap().contains("first frame"));
}

#[tokio::test]
async fn recompression_reduces_the_colour_depth() {
    let deep = DynamicImage::from(DynamicImage::from(noise(2_100, 4, 255)).to_rgba16());
    let bench = Bench::open();
    bench.file("deep.png", packed(&deep, ImageFormat::Png));
    let plain = shown(&bench.read("deep.png").await);
    assert_eq!(plain.picture().color(), image::ColorType::Rgba8);
}

#[tokio::test]
async fn damaged_images_are_detected() {
    let bench = Bench::open();
    for (format, media_type) in KINDS {
        let data = packed(&noise(64, 64, 255).into(), ImageFormat::Png);
        let data = if format == ImageFormat::Png { data } else { packed(&flag(64, 64), format) };
        for length in [12, data.len() / 2, data.len() - 20] {
            bench.file("it's cut.img", &data[..length]);
            let outcome = bench.read("it's cut.img").await;
            assert!(outcome.is_error, "{media_type} of {length} bytes: {outcome:?}");
            assert_fails_with(&outcome, "damaged (");
            assert_fails_with(&outcome, r"`convert '");
            assert_fails_with(&outcome, r"it'\''s cut.img' -resize 1500x1500");
        }
    }
}

#[tokio::test]
async fn a_truncated_photograph_with_a_thumbnail_is_detected() {
    let thumbnail = packed(&flag(8, 8), ImageFormat::Jpeg);
    let mut data = Vec::new();
    let mut encoder = JpegEncoder::new(&mut data);
    encoder.set_exif_metadata(thumbnail).expect("JPEG has room for it");
    let photo = DynamicImage::from(noise(200, 200, 255)).to_rgb8();
    photo.write_with_encoder(encoder).expect("a sound picture");
    let bench = Bench::open();
    bench.file("photo.jpg", &data);
    assert_eq!(shown(&bench.read("photo.jpg").await).size(), (200, 200));
    bench.file("photo.jpg", &data[..data.len() - 500]);
    assert_fails_with(&bench.read("photo.jpg").await, "damaged (it ends too early)");
}

/// Phones append films and further images, in which marks occur by chance.
#[tokio::test]
async fn what_follows_the_end_of_a_photograph_is_left_out() {
    let photo = packed(&flag(80, 80), ImageFormat::Jpeg);
    let bench = Bench::open();
    let sent = |outcome: &ToolOutcome| shown(outcome).data.clone();
    bench.file("photo.jpg", &photo);
    let alone = sent(&bench.read("photo.jpg").await);
    for trailer in [&b"SEFT\xff\xda tail"[..], b"\0\0\0", &photo, &photo[..90]] {
        bench.file("photo.jpg", [&photo, trailer].concat());
        assert_eq!(sent(&bench.read("photo.jpg").await), alone, "{trailer:?}");
    }
}

#[tokio::test]
async fn an_image_with_enormous_dimensions_is_not_decoded() {
    let bench = Bench::open();
    let mut png = packed(&flag(10, 10), ImageFormat::Png);
    png[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
    png[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
    let sum = checksum(&png[12..29]);
    png[29..33].copy_from_slice(&sum.to_be_bytes());
    bench.file("bomb.png", &png);
    assert_fails_with(&bench.read("bomb.png").await, "too much memory");
    let mut gif = packed(&flag(10, 10), ImageFormat::Gif);
    gif[6..10].copy_from_slice(&[0xff; 4]);
    bench.file("bomb.gif", &gif);
    assert_fails_with(&bench.read("bomb.gif").await, "65535x65535 pixels would take too much");
    let path = bench.file("huge.png", packed(&flag(10, 10), ImageFormat::Png));
    fs::File::options().write(true).open(&path).unwrap().set_len(33 << 20).unwrap();
    assert_fails_with(&bench.read("huge.png").await, "it has 34603008 bytes; at most 33554432");
}

/// PNG's.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32| (sum >> 1) ^ (0xedb8_8320 * (sum & 1));
    let take = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
    !bytes.iter().fold(u32::MAX, take)
}

#[tokio::test]
async fn a_file_that_is_not_an_image_is_not_sent_as_one() {
    let bench = Bench::open();
    bench.file("page.png", "<html>404 Not Found</html>\n");
    assert_eq!(text(&bench.read("page.png").await), "     1\t<html>404 Not Found</html>");
    for (name, what) in [("empty.PNG", "no picture in it"), ("empty.pdf", "no PDF in it")] {
        bench.file(name, "");
        assert_fails_with(&bench.read(name).await, what);
    }
    let foreign: [(&[u8], &str); 4] = [
        (b"II*\0\x08\0\0\0", "(TIFF)"),
        (b"BM\x36\0\x0c\0\0\0\0\0", "(BMP)"),
        (b"\0\0\0\x1cftypheic\0\0\0\0", "(HEIC)"),
        (b"\0\0\x01\0\x01\0", "(ICO)"),
    ];
    for (start, name) in foreign {
        bench.file("picture.png", start);
        assert_fails_with(&bench.read("picture.png").await, name);
    }
    bench.file("words", "BM is how this text begins\n");
    assert!(!bench.read("words").await.is_error);
}

#[test]
fn image_reading_yields_only_valid_images_for_any_bytes() {
    let bench = Bench::open();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sound = KINDS.map(|(format, _)| {
        let picture = imageops::crop_imm(&noise(30, 30, 255), 0, 0, 24, 12).to_image();
        let picture = DynamicImage::from(picture).to_rgb8().into();
        packed(&picture, format)
    });
    let harm = (0..KINDS.len(), proptest::collection::vec((0.0..1.0, any::<u8>()), 0..4), 0.3..1.3);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    let result = runner.run(&harm, |(kind, changes, length)| {
        let mut data = sound[kind].clone();
        let last = data.len() - 1;
        for (place, value) in changes {
            data[share(last, place)] = value;
        }
        data.truncate(share(data.len(), length));
        bench.file("it", &data);
        let outcome = runtime.block_on(bench.read("it"));
        if let Some(Block::Image { .. }) = outcome.content.first() {
            let (width, height) = shown(&outcome).size();
            prop_assert!(width.max(height) <= 2_000);
        } else {
            let told = text(&outcome);
            prop_assert!(!told.contains("defect"), "{}", told);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "these are small and positive"
)]
fn share(whole: usize, share: f64) -> usize {
    (whole as f64 * share) as usize
}
