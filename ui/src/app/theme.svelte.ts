// Light, dark, or as the system says. Colours follow by `color-scheme` alone.

const KEY = 'vitrina.theme';
const DARK = '(prefers-color-scheme: dark)';
export type Theme = 'system' | 'light' | 'dark';

class Appearance {
  theme = $state<Theme>('system');
  #system = $state(matchMedia(DARK).matches ? 'dark' : 'light');

  /** What is to be seen now, for what cannot follow `color-scheme`. */
  get shown(): string {
    return this.theme === 'system' ? this.#system : this.theme;
  }

  start(): void {
    matchMedia(DARK).addEventListener('change', ({ matches }) => (this.#system = matches ? 'dark' : 'light'));
    this.choose((localStorage.getItem(KEY) as Theme | null) ?? 'system');
  }

  choose(theme: Theme): void {
    this.theme = theme;
    document.documentElement.dataset['theme'] = theme;
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  }

  next(): void {
    this.choose(this.theme === 'system' ? 'dark' : this.theme === 'dark' ? 'light' : 'system');
  }
}

export const appearance = new Appearance();
