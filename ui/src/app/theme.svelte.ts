// Light, dark, or as the system says. Colours follow by `color-scheme` alone.

const KEY = 'vitrina.theme';
export type Theme = 'system' | 'light' | 'dark';

class Appearance {
  theme = $state<Theme>('system');

  start(): void {
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
