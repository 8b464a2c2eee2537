"""Colours of pictures for light and dark screens, as colours and not as variables of CSS: only browsers know those, and
other programs draw black shapes for them."""

import re

# Light and dark (colours of Okabe and Ito, which the colour-blind tell apart too, those of the dark set lightened).
COLOURS = {
    "ground": ("#ffffff", "#131416"),
    "ink": ("#212223", "#d8dadd"),
    "faint": ("#d5d7da", "#3a3d42"),
    "blue": ("#0072b2", "#5cb3e6"),
    "orange": ("#d55e00", "#f0904d"),
    "green": ("#00855f", "#3fc79f"),
    "purple": ("#b0578a", "#e09ac0"),
    "grey": ("#777879", "#9a9da1"),
    "yellow": ("#a07800", "#e6c34d"),
}


def on_both_screens(svg, rules="", colours=COLOURS):
    """Returns the picture with these rules and with a colour for each `var(--name)` of both, light unless the screen is
    dark. Such names may stand in attributes, in `style` attributes as "fill: var(--ink)", and in the rules."""

    def coloured(text, screen):
        return re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]][screen], text)

    dark = []
    for selector, declarations in re.findall(r"([^{}]+)\{([^{}]*)\}", rules):
        changed = [each.strip() for each in declarations.split(";") if "var(--" in each]
        if changed:
            dark.append(f"{selector.strip()}{{{';'.join(changed)}}}")
    for what, name in sorted(set(re.findall(r'\b([\w-]+)="var\(--(\w+)\)"', svg))):
        dark.append(f'[{what}="{colours[name][0]}"]{{{what}:var(--{name})}}')
    for what, name in sorted(set(re.findall(r"\b([\w-]+): var\(--(\w+)\)", svg))):
        dark.append(f'[style*="{what}: {colours[name][0]}"]{{{what}:var(--{name})!important}}')
    sheet = f"{coloured(rules, 0)}@media(prefers-color-scheme:dark){{{coloured(''.join(dark), 1)}}}"
    return re.sub(r"<svg [^>]*>", lambda tag: f"{tag[0]}\n<style>{sheet}</style>", coloured(svg, 0), count=1)


def svg_of(name, figure_of):
    """Returns the Matplotlib figure of figure_of() for both screens, as text that is the same each time."""
    import io

    import matplotlib

    matplotlib.use("svg")
    ground, ink = COLOURS["ground"][0], COLOURS["ink"][0]
    settings = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9, "figure.facecolor": ground,
        "font.family": "sans-serif", "axes.facecolor": ground, "axes.edgecolor": COLOURS["grey"][0], "text.color": ink,
        "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        file = io.StringIO()
        figure_of().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    for colour, (light, _) in COLOURS.items():
        text = text.replace(light, f"var(--{colour})")
    return on_both_screens(text)
