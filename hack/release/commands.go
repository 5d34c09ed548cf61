package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// The program is released under two names: it is the plugin of kubectl under the second one.
const tool, plugin = "sallyport", "kubectl-sallyport"

// archive returns the path of the archive that has the program under a name.
func (r *release) archive(name string, p platform) string {
	extension := "tar.gz"
	if p.os == "windows" {
		extension = "zip"
	}
	return r.file("%s_%s_%s.%s", name, r.version, p, extension)
}

// archives writes an archive of each command for each platform.
func (r *release) archives(ctx context.Context) error {
	for _, p := range r.platforms {
		binary, err := r.binary(ctx, p)
		if err != nil {
			return err
		}
		for _, name := range []string{tool, plugin} {
			path, pack := r.archive(name, p), writeTarGz
			if filepath.Ext(path) == ".zip" {
				pack = writeZip
			}
			files := []file{
				{name: p.executable(name), path: binary, mode: 0o755}, {name: "LICENSE", path: filepath.Join(r.root, "LICENSE"), mode: 0o644},
				{name: "THIRD_PARTY_LICENSES.txt", path: r.licences(), mode: 0o644},
			}
			if err := write(path, func(w io.Writer) error { return pack(w, r.when, files) }); err != nil {
				return fmt.Errorf("writing %s: %w", path, err)
			}
		}
	}
	return nil
}

// krew writes the manifest by which krew, kubectl's plugin manager, installs the plugin.
func (r *release) krew(context.Context) error {
	var all []any
	for _, p := range r.platforms {
		archive := r.archive(plugin, p)
		sum, err := checksum(archive)
		if err != nil {
			return err
		}
		all = append(all, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": p.os, "arch": p.arch}},
			"uri":      strings.TrimSuffix(r.downloads, "/") + "/" + r.version + "/" + filepath.Base(archive),
			"sha256":   sum, "bin": p.executable(plugin),
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]any{"name": tool},
		"spec": map[string]any{
			"version": r.version, "homepage": "https://sallyport.dev", "shortDescription": "Operate virtual machines behind a policy gate",
			"description": "Starts, stops, moves and protects the virtual machines of Sallyport, and tells why\na request was denied and what is allowed instead.\n",
			"platforms":   all,
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(r.file("%s.yaml", tool), text, 0o644)
}

// checksums writes the hashes of all files, in the form of sha256sum. It is the last file that is written.
func (r *release) checksums(context.Context) error {
	files, err := below(r.dist, "")
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range files {
		sum, err := checksum(f.path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, f.name)
	}
	return os.WriteFile(r.file("SHA256SUMS"), []byte(lines.String()), 0o644)
}

func checksum(path string) (string, error) {
	hash := sha256.New()
	err := file{path: path}.copy(hash)
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}
