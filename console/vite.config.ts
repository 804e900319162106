import { defineConfig } from "vite";

// Fixed names: the program contains these files, and its ETags say whether they have changed.
export default defineConfig({
  base: "/console/",
  server: { proxy: { "^/(tools|invocations|usage|events|approvals|sources|replicas|readyz|cache|console/session)": "http://127.0.0.1:7411" } },
  build: {
    outDir: "dist",
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: { entryFileNames: "console.js", assetFileNames: "console.[ext]", inlineDynamicImports: true },
    },
  },
});
