//! Charts as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::cell::shown;

const WIDTH: u32 = 760;
const OURS: RGBColor = RGBColor(0xc0, 0x39, 0x2b);
const OTHERS: [RGBColor; 4] = [
    RGBColor(0x5d, 0x6d, 0x7e),
    RGBColor(0x2e, 0x86, 0xc1),
    RGBColor(0x8e, 0x6c, 0xa6),
    RGBColor(0x7d, 0x8b, 0x4e),
];
const FAINT: RGBColor = RGBColor(0xb5, 0xbb, 0xc1);
const INK: RGBColor = RGBColor(0x22, 0x2b, 0x33);

/// A chart.
pub(crate) enum Chart {
    Bars(Bars),
    Lines(Lines),
}

/// A bar chart.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// The unit, and whether more is better.
    pub(crate) unit: String,
    /// Name and figure of each bar. Names that begin with `ours` are highlighted.
    pub(crate) bars: Vec<(String, f64)>,
    pub(crate) ours: &'static str,
}

/// A line chart.
pub(crate) struct Lines {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
    /// Both axes are logarithmic.
    pub(crate) by_factors: bool,
    /// Also draws linear growth from the first point of the first series.
    pub(crate) with_linear: bool,
}

/// One line.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) is_ours: bool,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Chart {
    /// The chart as the text of an SVG file.
    pub(crate) fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = match self {
            Self::Bars(bars) => bars.draw(&mut svg),
            Self::Lines(lines) => lines.draw(&mut svg),
        };
        drawn.expect("drawing to memory succeeds");
        svg + "\n"
    }
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Bars {
    const LEFT: i32 = 250;
    const TOP: i32 = 64;
    const STEP: i32 = 32;
    /// The width of the figure beside a bar.
    const RIGHT: i32 = 90;

    fn draw<'a>(&self, svg: &'a mut String) -> Drawn<'a> {
        let rows = i32::try_from(self.bars.len()).unwrap_or(0);
        let height = u32::try_from(Self::TOP + rows * Self::STEP + 12).unwrap_or(100);
        let area: Area<'a> = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        title(&area, &self.title, &self.unit)?;
        let most = self.bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        let room = f64::from(WIDTH) - f64::from(Self::LEFT + Self::RIGHT);
        for (row, (name, value)) in (0..rows).zip(&self.bars) {
            let (top, middle) = (Self::TOP + row * Self::STEP, Self::TOP + row * Self::STEP + 11);
            let is_ours = name.starts_with(self.ours);
            let color = if is_ours { OURS } else { OTHERS[0] };
            #[allow(clippy::cast_possible_truncation, reason = "a position on a chart")]
            let end = Self::LEFT + (value / most * room).max(1.0) as i32;
            area.draw(&Rectangle::new([(Self::LEFT, top), (end, top + 22)], color.filled()))?;
            area.draw(&Text::new(name.clone(), (Self::LEFT - 10, middle), label(13, HPos::Right)))?;
            let decimals = if *value < 10.0 { 2 } else { usize::from(*value < 100.0) };
            area.draw(&Text::new(shown(*value, decimals), (end + 8, middle), label(13, HPos::Left)))?;
        }
        area.present()
    }
}

/// Maps figures to positions on a chart.
struct PlotArea {
    x: (f64, f64),
    y: (f64, f64),
    by_factors: bool,
}

impl PlotArea {
    const HEIGHT: u32 = 400;
    const LEFT: f64 = 84.0;
    const RIGHT: f64 = 730.0;
    const TOP: f64 = 56.0;
    const BOTTOM: f64 = 336.0;

    /// An area that contains all points, with round figures at its lower and upper edge.
    fn around(points: &[(f64, f64)], by_factors: bool) -> Self {
        let bounds = |of: fn(&(f64, f64)) -> f64| super::spread(&points.iter().map(of).collect::<Vec<_>>());
        let (x, y) = (bounds(|point| point.0), bounds(|point| point.1));
        let low =
            if by_factors { round_figures(y.0).rfind(|figure| *figure <= y.0).unwrap_or(y.0) } else { 0.0 };
        let high = round_figures(y.1).find(|figure| *figure >= y.1).unwrap_or(y.1);
        Self { x, y: (low, high), by_factors }
    }

    fn place(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let share = |value: f64, (low, high): (f64, f64)| {
            if high <= low {
                0.0
            } else if self.by_factors {
                (value / low).ln() / (high / low).ln()
            } else {
                (value - low) / (high - low)
            }
        };
        let across = Self::LEFT + share(x, self.x) * (Self::RIGHT - Self::LEFT);
        let up = Self::BOTTOM - share(y, self.y) * (Self::BOTTOM - Self::TOP);
        #[allow(clippy::cast_possible_truncation, reason = "a position on a chart")]
        (across.round() as i32, up.round() as i32)
    }

    /// The figures on the vertical axis.
    fn levels(&self) -> Vec<f64> {
        if self.by_factors {
            return round_figures(self.y.0)
                .chain(round_figures(self.y.1))
                .filter(|one| self.holds(*one))
                .collect();
        }
        (0..=5).map(|fifth| self.y.1 * f64::from(fifth) / 5.0).collect()
    }

    fn holds(&self, y: f64) -> bool {
        (self.y.0..=self.y.1).contains(&y)
    }

    /// Draws the axes, and a mark for every measured position.
    fn draw<'a>(&self, area: &Area<'a>, lines: &Lines, places: &[f64]) -> Drawn<'a> {
        for level in self.levels() {
            let ends = [self.place((self.x.0, level)), self.place((self.x.1, level))];
            area.draw(&PathElement::new(ends, FAINT.mix(0.6).stroke_width(1)))?;
            let at = (ends[0].0 - 10, ends[0].1);
            area.draw(&Text::new(said(level), at, label(12, HPos::Right)))?;
        }
        for x in places {
            let (across, bottom) = self.place((*x, self.y.0));
            area.draw(&PathElement::new([(across, bottom), (across, bottom + 5)], FAINT.stroke_width(1)))?;
            area.draw(&Text::new(said(*x), (across, bottom + 16), label(12, HPos::Center)))?;
        }
        let (right, bottom) = self.place((self.x.1, self.y.0));
        area.draw(&Text::new(lines.x.clone(), (right, bottom + 40), label(13, HPos::Right)))?;
        title(area, &lines.title, &lines.y)
    }
}

/// 1, 2 and 5 times the powers of ten around a figure.
fn round_figures(near: f64) -> impl DoubleEndedIterator<Item = f64> {
    #[allow(clippy::cast_possible_truncation, reason = "a power of ten")]
    let power = near.max(f64::MIN_POSITIVE).log10().floor() as i32;
    (power - 1..=power + 1).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
}

fn said(value: f64) -> String {
    shown(value, if value < 10.0 { usize::from(value.fract().abs() > 1e-6) } else { 0 })
}

impl Lines {
    fn draw<'a>(&self, svg: &'a mut String) -> Drawn<'a> {
        let area: Area<'a> = SVGBackend::with_string(svg, (WIDTH, PlotArea::HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let points: Vec<_> = self.series.iter().flat_map(|series| &series.points).copied().collect();
        let frame = PlotArea::around(&points, self.by_factors);
        let mut places: Vec<f64> = points.iter().map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        frame.draw(&area, self, &places)?;
        // The legend is below the chart, with an entry for each line.
        let mut legend = (90, 384);
        let linear = self.linear(&places).into_iter().filter(|point| frame.holds(point.1)).collect();
        let mut colors = OTHERS.iter().cycle();
        let lines = self.series.iter().map(|series| {
            let color = if series.is_ours { OURS } else { *colors.next().unwrap_or(&INK) };
            (series.name.as_str(), color, series.points.clone())
        });
        for (name, color, points) in [("linear", FAINT, linear)].into_iter().chain(lines) {
            if points.is_empty() {
                continue;
            }
            let placed: Vec<_> = points.into_iter().map(|point| frame.place(point)).collect();
            for place in &placed {
                area.draw(&Circle::new(*place, 3, color.filled()))?;
            }
            area.draw(&PathElement::new(placed, color.stroke_width(2)))?;
            let key = [(legend.0, legend.1), (legend.0 + 22, legend.1)];
            area.draw(&PathElement::new(key, color.stroke_width(4)))?;
            area.draw(&Text::new(name.to_owned(), (legend.0 + 30, legend.1), label(13, HPos::Left)))?;
            legend.0 += 150;
        }
        area.present()
    }

    /// Linear growth from the first point of the first series.
    fn linear(&self, places: &[f64]) -> Vec<(f64, f64)> {
        match self.series.first().and_then(|series| series.points.first()) {
            Some((x0, y0)) if self.with_linear => places.iter().map(|x| (*x, y0 * x / x0)).collect(),
            _ => Vec::new(),
        }
    }
}

fn title<'a>(area: &Area<'a>, title: &str, unit: &str) -> Drawn<'a> {
    area.draw(&Text::new(title.to_owned(), (14, 20), label(17, HPos::Left)))?;
    area.draw(&Text::new(unit.to_owned(), (14, 42), label(13, HPos::Left)))
}

fn label(size: i32, side: HPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK).pos(Pos::new(side, VPos::Center))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_name_and_its_figure() {
        let bars = vec![("redlock".to_owned(), 12_345.0), ("others".to_owned(), 0.5)];
        let chart = Bars { title: "A title".into(), unit: "locks/s".into(), bars, ours: "redlock" };
        let svg = Chart::Bars(chart).svg();
        for text in ["A title", "locks/s", "redlock", "12,345", "others", "0.50", "C0392B"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn a_line_chart_has_a_mark_at_every_measured_position() {
        let points = vec![(1.0, 100.0), (4.0, 200.0), (16.0, 1_000.0)];
        let series = [Series { name: "ours".into(), points, is_ours: true }];
        let (x, y) = ("tasks".to_owned(), "us".to_owned());
        for by_factors in [false, true] {
            let series = series.iter().map(|one| Series {
                points: one.points.clone(),
                name: one.name.clone(),
                ..*one
            });
            let title = "Growth".to_owned();
            let (x, y) = (x.clone(), y.clone());
            let lines = Lines { title, x, y, series: series.collect(), by_factors, with_linear: true };
            let svg = Chart::Lines(lines).svg();
            for text in ["Growth", "tasks", "ours", "linear", ">\n1\n<", ">\n4\n<", ">\n16\n<"] {
                assert!(svg.contains(text), "{text} {by_factors}: {svg}");
            }
        }
    }

    #[test]
    fn a_line_of_one_point_can_be_drawn() {
        let series = vec![Series { name: "ours".into(), points: vec![(1.0, 1.0)], is_ours: true }];
        let (title, x, y) = ("t".to_owned(), "x".to_owned(), "y".to_owned());
        let lines = Lines { title, x, y, series, by_factors: false, with_linear: true };
        assert!(Chart::Lines(lines).svg().contains("</svg>"));
    }
}
