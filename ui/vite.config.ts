import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** The binary embeds `dist` as it is, gzip twins included, and a folder that git knows is always there to be embedded. */
function embeddable(): Plugin {
  const ignored = '*\n!.gitignore\n';
  return {
    name: 'embeddable',
    apply: 'build',
    writeBundle({ dir = 'dist' }) {
      for (const name of readdirSync(dir, { recursive: true, encoding: 'utf8' })) {
        if (!/\.(html|js|css|svg|md)$/.test(name)) continue;
        const file = join(dir, name);
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
      }
      writeFileSync(join(dir, '.gitignore'), ignored);
    },
  };
}

const api = process.env['VITRINA_API'] ?? 'http://127.0.0.1:8080';

export default defineConfig({
  base: '/ui/',
  plugins: [svelte(), embeddable()],
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The binary passes on what others wrote; their terms go with it.
    license: { fileName: 'licenses.md' },
    // What every screen shares is one file, not a dozen of a few hundred bytes.
    rolldownOptions: {
      checks: { pluginTimings: false },
      output: {
        codeSplitting: {
          groups: [{ name: 'shared', test: /\/src\/(api|app|format|parts)\/|\/node_modules\/svelte\// }],
        },
      },
    },
  },
  // While developing, the API is that of `vitrina demo`.
  server: { proxy: { '/api': { target: api, changeOrigin: true, headers: { origin: api } } } },
});
