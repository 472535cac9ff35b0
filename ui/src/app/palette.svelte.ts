// Whether the palette is open; it is loaded when it is first opened.

class Palette {
  open = $state(false);
}

export const palette = new Palette();
export const openPalette = () => (palette.open = true);
