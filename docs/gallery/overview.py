"""Write docs/images/overview.webp, the picture of the README, from pictures of the gallery.

`python docs/gallery/overview.py`, after `make.py`. Each panel is the figure of one report.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(__file__).parent
PATH = FOLDER.parent / "images" / "overview.webp"
# workflow -> caption, and the figure's box (left, upper, right, lower) in the picture.
PANELS = {
    "rayleigh_benard": ("Super-resolution of convection, 4 x 8 x 8", (165, 126, 795, 452)),
    "chaos": ("Forecast of Lorenz-96: error of this and other methods", (165, 160, 795, 482)),
    "acac_mace": ("MACE potential of acetylacetone: test energies", (165, 104, 795, 432)),
    "vlasov_landau": ("Training data with a known truth: Landau damping", (165, 112, 795, 452)),
}
CELL, CAPTION, QUALITY = (640, 400), 32, 82


def main() -> None:
    """Write the panels in two columns, each below its caption."""
    width, height = CELL
    sheet = Image.new("RGB", (2 * width, len(PANELS) // 2 * height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=20)
    for number, (workflow, (caption, box)) in enumerate(PANELS.items()):
        left, top = number % 2 * width, number // 2 * height
        draw.text((left + 16, top + 8), caption, fill="#222222", font=font)
        with Image.open(FOLDER / f"{workflow}.webp") as picture:
            figure = picture.convert("RGB").crop(box)
        scale = min((width - 16) / figure.width, (height - CAPTION - 16) / figure.height)
        size = (round(figure.width * scale), round(figure.height * scale))
        figure = figure.resize(size, Image.Resampling.LANCZOS)
        sheet.paste(figure, (left + (width - size[0]) // 2, top + CAPTION + 8))
    PATH.parent.mkdir(exist_ok=True)
    sheet.save(PATH, quality=QUALITY, method=6)


if __name__ == "__main__":
    main()
