//! Prepares images for the model API: decodes them once, so that damaged ones are detected, and
//! scales down large ones. Memory is bounded whatever size a file declares.

use std::fmt::Display;
use std::io::Cursor;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U8x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use image::codecs::gif::GifDecoder;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{
    AnimationDecoder, DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageFormat,
    ImageReader, ImageResult, Limits, Pixel, RgbImage,
};

/// The longer side, in pixels. The API accepts 8,000, but only 2,000 for each image in a request
/// with more than 20, and it scales down much larger ones anyway.
const SIDE_MAX: u32 = 2_000;
/// The longer side, for an image that has too many bytes at `SIDE_MAX`.
const SIDE_LAST: u32 = 1_000;

/// The API accepts 5 MB of base64 for one image, which is this many bytes.
const BYTES_MAX: usize = (5 << 20) / 4 * 3;

/// The maximum decoded size, in bytes: 50 megapixels of four channels.
const DECODED_MAX: u64 = 200 << 20;

const JPEG_QUALITY: u8 = 85;

/// An image that the API accepts.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) format: ImageFormat,
    pub(super) data: Vec<u8>,
    /// Width and height, in pixels.
    pub(super) size: (u32, u32),
    /// Width and height of the file's image.
    pub(super) full_size: (u32, u32),
    pub(super) is_animated: bool,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::tools) enum PictureFlaw {
    #[error("of a kind that cannot be shown")]
    UnknownKind,
    #[error("the picture is damaged ({why})")]
    Damaged { why: String },
    #[error("{what} would take too much memory")]
    TooLarge { what: String },
    #[error("it stays too large even scaled down")]
    Incompressible,
}

/// Checks an image, and scales it down if needed. An acceptable image is returned unchanged, but
/// without the bytes after its end.
pub(super) fn prepare(format: ImageFormat, mut data: Vec<u8>) -> Result<Picture, PictureFlaw> {
    let (mut picture, orientation) = decode(format, &data)?;
    if format == ImageFormat::Jpeg {
        let Some(end) = jpeg_end(&data) else {
            return Err(PictureFlaw::Damaged { why: "it ends too early".to_string() });
        };
        data.truncate(end);
    }
    let is_animated = is_animated(format, &data).map_err(|error| flaw(&error))?;
    let size = (picture.width(), picture.height());
    if size.0.max(size.1) <= SIDE_MAX && data.len() <= BYTES_MAX && !is_animated {
        return Ok(Picture { format, data, size, full_size: size, is_animated });
    }
    drop(data);
    picture.apply_orientation(orientation);
    let full_size = (picture.width(), picture.height());
    // Best first. A photograph only grows as a PNG.
    let formats = [ImageFormat::Png, ImageFormat::Jpeg];
    let formats = &formats[usize::from(format == ImageFormat::Jpeg)..];
    for side in [SIDE_MAX, SIDE_LAST] {
        picture = scaled(picture, side)?;
        let size = (picture.width(), picture.height());
        for format in formats {
            let data = encode(&picture, *format).map_err(|error| flaw(&error))?;
            if data.len() <= BYTES_MAX {
                let format = *format;
                return Ok(Picture { format, data, size, full_size, is_animated });
            }
        }
    }
    Err(PictureFlaw::Incompressible)
}

fn decode(format: ImageFormat, data: &[u8]) -> Result<(DynamicImage, Orientation), PictureFlaw> {
    let mut reader = ImageReader::with_format(Cursor::new(data), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(|error| flaw(&error))?;
    let (width, height) = decoder.dimensions();
    if decoder.total_bytes() > DECODED_MAX {
        return Err(PictureFlaw::TooLarge { what: format!("{width}x{height} pixels") });
    }
    // Without an orientation the image is still useful.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let picture = DynamicImage::from_decoder(decoder).map_err(|error| flaw(&error))?;
    Ok((picture, orientation))
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODED_MAX);
    limits
}

fn flaw(error: &ImageError) -> PictureFlaw {
    if matches!(error, ImageError::Limits(_)) {
        PictureFlaw::TooLarge { what: "its decoded content".to_string() }
    } else {
        PictureFlaw::Damaged { why: error.to_string() }
    }
}

/// The end of the first image in a JPEG: phones append films and further images. `None` if it is
/// truncated; the decoder would fill the missing part with grey.
fn jpeg_end(data: &[u8]) -> Option<usize> {
    const START: u8 = 0xd8;
    const END: u8 = 0xd9;
    // Not fill bytes, nor the escaped bytes and restarts within image data.
    let is_mark = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 1 | 0xd0..=0xd7 | 0xff);
    let mut at = 0;
    loop {
        at += data.get(at..)?.windows(2).position(is_mark)? + 2;
        let marker = data[at - 1];
        if marker == END {
            return Some(at);
        }
        if marker != START {
            // The segment may contain a preview with marks of its own.
            let length = data.get(at..at + 2)?;
            at += usize::from(u16::from_be_bytes([length[0], length[1]]));
        }
    }
}

/// True if there is a second frame. The API uses only the first, if it accepts the file at all.
fn is_animated(format: ImageFormat, data: &[u8]) -> ImageResult<bool> {
    if format == ImageFormat::Gif {
        let mut decoder = GifDecoder::new(Cursor::new(data))?;
        decoder.set_limits(limits())?;
        Ok(decoder.into_frames().nth(1).is_some())
    } else if format == ImageFormat::WebP {
        Ok(WebPDecoder::new(Cursor::new(data))?.has_animation())
    } else {
        Ok(false)
    }
}

/// Scales down until neither side is longer than `side`, in eight bits for each channel.
fn scaled(picture: DynamicImage, side: u32) -> Result<DynamicImage, PictureFlaw> {
    let color = picture.color();
    if color.has_alpha() {
        Ok(fitted::<_, U8x4>(picture.into_rgba8(), side)?.into())
    } else if color.has_color() {
        Ok(fitted::<_, U8x3>(picture.into_rgb8(), side)?.into())
    } else {
        Ok(fitted::<_, U8>(picture.into_luma8(), side)?.into())
    }
}

/// Scales down a picture of one of the few pixel types in use: each is compiled separately. `R` is
/// the type that the crate for scaling has for `P`.
fn fitted<P: Pixel<Subpixel = u8>, R: PixelTrait>(
    picture: ImageBuffer<P, Vec<u8>>,
    side: u32,
) -> Result<ImageBuffer<P, Vec<u8>>, PictureFlaw> {
    let (width, height) = picture.dimensions();
    let longer = width.max(height);
    if longer <= side {
        return Ok(picture);
    }
    let length = |own: u32| {
        let rounded =
            (u64::from(own) * u64::from(side) + u64::from(longer / 2)) / u64::from(longer);
        u32::try_from(rounded).unwrap_or(side).max(1)
    };
    let flaw = |why: &dyn Display| PictureFlaw::Damaged { why: why.to_string() };
    let source = TypedImageRef::<R>::from_buffer(width, height, picture.as_raw())
        .map_err(|why| flaw(&why))?;
    let (width, height) = (length(width), length(height));
    // Neither side is longer than `side`.
    let mut bytes = vec![0; width as usize * height as usize * usize::from(P::CHANNEL_COUNT)];
    let mut target =
        TypedImage::<R>::from_buffer(width, height, &mut bytes).map_err(|why| flaw(&why))?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize_typed(&source, &mut target, &options).map_err(|why| flaw(&why))?;
    ImageBuffer::from_raw(width, height, bytes).ok_or_else(|| flaw(&"no pixels"))
}

fn encode(picture: &DynamicImage, format: ImageFormat) -> ImageResult<Vec<u8>> {
    let mut data = Vec::new();
    if format == ImageFormat::Jpeg {
        let encoder = JpegEncoder::new_with_quality(&mut data, JPEG_QUALITY);
        on_white(picture).write_with_encoder(encoder)?;
    } else {
        picture.write_with_encoder(PngEncoder::new(&mut data))?;
    }
    Ok(data)
}

/// Draws a picture on white: JPEG has no transparency, and most transparent pictures are made for a
/// white background.
fn on_white(picture: &DynamicImage) -> RgbImage {
    if !picture.color().has_alpha() {
        return picture.to_rgb8();
    }
    let picture = picture.to_rgba8();
    RgbImage::from_fn(picture.width(), picture.height(), |x, y| {
        let [red, green, blue, alpha] = picture.get_pixel(x, y).0.map(u16::from);
        let over = |part: u16| (part * alpha + 255 * (255 - alpha)) / 255;
        image::Rgb([red, green, blue].map(|part| u8::try_from(over(part)).unwrap_or(u8::MAX)))
    })
}
