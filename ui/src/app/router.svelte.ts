// Addresses under /ui/: the path names a screen, the query its filters. Plain links work; the browser's history is ours.

const BASE = '/ui';

class Router {
  path = $state(read().path);
  query = $state.raw(read().query);

  constructor() {
    addEventListener('popstate', () => this.#follow());
    addEventListener('click', (event) => this.#click(event));
  }

  go(to: string, replace = false): void {
    history[replace ? 'replaceState' : 'pushState'](null, '', BASE + to);
    this.#follow();
    if (!replace) scrollTo(0, 0);
  }

  /** Changes filters in place: going back leaves the screen, not the last letter typed. */
  filter(changes: Record<string, string | null>): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    this.go(this.path + (text ? `?${text}` : ''), true);
  }

  #follow(): void {
    ({ path: this.path, query: this.query } = read());
  }

  #click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    this.go(link.pathname.slice(BASE.length) + link.search);
  }
}

function read(): { path: string; query: URLSearchParams } {
  const path = location.pathname.slice(BASE.length).replace(/\/+$/, '');
  return { path: path === '' ? '/' : path, query: new URLSearchParams(location.search) };
}

export const router = new Router();

/** The address of a screen, for links. */
export function to(...parts: string[]): string {
  return `${BASE}/${parts.map(encodeURIComponent).join('/')}`;
}
