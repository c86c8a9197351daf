//! Chooses colors, markers and dashes: one hue per program, one marker and dash per target, so that
//! figures are readable in gray too. Each color has a variant for dark screens.

use plotters::style::RGBColor;

use crate::bench::outcome::Target;

/// A color on light paper and on a dark screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    pub(crate) light: (u8, u8, u8),
    pub(crate) dark: (u8, u8, u8),
}

const fn ink(light: u32, dark: u32) -> Ink {
    const fn split(rgb: u32) -> (u8, u8, u8) {
        ((rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8)
    }
    Ink {
        light: split(light),
        dark: split(dark),
    }
}

pub(super) const TEXT: Ink = ink(0x1f2328, 0xe6edf3);
pub(super) const MUTED: Ink = ink(0x59636e, 0x9aa4af);
pub(super) const GRID: Ink = ink(0xe1e4e8, 0x30363d);
pub(super) const AXIS: Ink = ink(0x9ba3ac, 0x6b7580);
/// Background, drawn under and between items to separate them.
pub(super) const PAPER: Ink = ink(0xfefefe, 0x151b23);
const DIRECT: Ink = ink(0x444c56, 0xc3cbd4);
const EVENKEEL: Ink = ink(0x0b57d0, 0x79b8ff);

/// Common programs with fixed colors, so that they look alike in every report.
const KNOWN: [(&str, Ink); 8] = [
    ("haproxy", ink(0xbc4c00, 0xffa657)),
    ("nginx", ink(0x1a7f37, 0x57d477)),
    ("mysql-router", ink(0x8250df, 0xc8a6ff)),
    ("pgpool", ink(0xb3245f, 0xff8fb8)),
    ("pgbouncer", ink(0x8a6100, 0xe3b341)),
    ("odyssey", ink(0x0a7d91, 0x4fd3e8)),
    ("ipvs", ink(0x6e4b3a, 0xd3a68f)),
    ("glb", ink(0x5a6b00, 0xb7cc3f)),
];
const UNKNOWN: [Ink; 3] = [
    ink(0x9a3b9e, 0xe5a0e8),
    ink(0x2d6a8e, 0x8cc4e6),
    ink(0x7d4e00, 0xd9b06b),
];

/// Parts of a whole, from dark to light on paper, then two of another hue. Texts on the first two
/// are in PAPER, on the others in TEXT.
pub(super) const PARTS: [Ink; 7] = [
    ink(0x0a3d91, 0x79b8ff),
    ink(0x4f86d9, 0x4579b8),
    ink(0x9dbdee, 0x2f527f),
    ink(0xc9daf5, 0x253f60),
    ink(0xe6eefb, 0x1d2f47),
    ink(0x8f3d00, 0xffb27a),
    ink(0xe39a5f, 0xa8622b),
];

/// Appearance of a target in the figures of one experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetStyle {
    pub(super) ink: Ink,
    pub(super) marker: Marker,
    /// Lengths drawn and left out, in pixels; `None` means a solid line.
    pub(super) dash: Option<(i32, i32)>,
    pub(super) is_strong: bool,
}

/// Shape at each measured point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    Ring,
    Cross,
    Plus,
}

const MARKERS: [Marker; 7] = [
    Marker::Disc,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Ring,
    Marker::Cross,
    Marker::Plus,
];
/// Dashes of the first, second and further targets of one program.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((8, 4)), Some((3, 3)), Some((12, 3))];

/// Returns the appearance of each target, in order.
pub(super) fn target_styles(targets: &[Target]) -> Vec<TargetStyle> {
    let mut strangers: Vec<&str> = Vec::new();
    let mut target_styles = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let program = target.program.as_str();
        let variant = targets[..index]
            .iter()
            .filter(|other| other.program == program)
            .count();
        let is_direct = program.is_empty();
        target_styles.push(TargetStyle {
            ink: ink_of(program, &mut strangers),
            marker: MARKERS[index % MARKERS.len()],
            dash: DASHES[(variant + usize::from(is_direct)) % DASHES.len()],
            is_strong: program == "evenkeel",
        });
    }
    target_styles
}

fn ink_of<'a>(program: &'a str, strangers: &mut Vec<&'a str>) -> Ink {
    if program.is_empty() {
        return DIRECT;
    }
    if program == "evenkeel" {
        return EVENKEEL;
    }
    if let Some((_, ink)) = KNOWN.iter().find(|(name, _)| *name == program) {
        return *ink;
    }
    let number = strangers.iter().position(|name| *name == program);
    let number = number.unwrap_or_else(|| {
        strangers.push(program);
        strangers.len() - 1
    });
    UNKNOWN[number % UNKNOWN.len()]
}

impl Ink {
    /// Returns the color as drawn; [`dark_rules`] changes it on dark screens.
    pub(super) fn paint(self) -> RGBColor {
        let (red, green, blue) = self.light;
        RGBColor(red, green, blue)
    }
}

/// Returns the style rules that change the drawn colors on a dark screen.
pub(crate) fn dark_rules() -> String {
    let fixed = [TEXT, MUTED, GRID, AXIS, PAPER, DIRECT, EVENKEEL];
    let known = KNOWN.iter().map(|(_, ink)| *ink);
    let all = fixed.into_iter().chain(known).chain(UNKNOWN).chain(PARTS);
    all.map(|ink| {
        let (light, dark) = (hex(ink.light), hex(ink.dark));
        format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}")
    })
    .collect()
}

/// Formats a color as the charting library does.
fn hex((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(programs: &[&str]) -> Vec<Target> {
        let target = |program: &&str| Target {
            program: (*program).to_owned(),
            ..Target::default()
        };
        programs.iter().map(target).collect()
    }

    #[test]
    fn targets_of_one_program_differ_in_more_than_colour() {
        let target_styles = target_styles(&targets(&[
            "", "haproxy", "haproxy", "evenkeel", "evenkeel",
        ]));
        assert_eq!(target_styles[1].ink, target_styles[2].ink);
        assert_ne!(target_styles[1].dash, target_styles[2].dash);
        assert_ne!(target_styles[3].marker, target_styles[4].marker);
        assert!(target_styles[3].is_strong && !target_styles[1].is_strong);
        assert_ne!(target_styles[0].dash, None, "direct is never a whole line");
    }

    #[test]
    fn unknown_programs_get_hues_of_their_own() {
        let target_styles = target_styles(&targets(&["envoy", "traefik", "envoy"]));
        assert_ne!(target_styles[0].ink, target_styles[1].ink);
        assert_eq!(target_styles[0].ink, target_styles[2].ink);
    }

    #[test]
    fn every_colour_can_be_told_by_its_light_form() {
        let rules = dark_rules();
        let mut lights: Vec<&str> = rules
            .split("svg [fill=\"")
            .skip(1)
            .map(|r| &r[..7])
            .collect();
        let count = lights.len();
        lights.sort_unstable();
        lights.dedup();
        assert_eq!(lights.len(), count, "two colours with one light form");
    }
}
