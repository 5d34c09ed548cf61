package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// goPath is the import path of Sallyport's module, standard the name of Go's library in SBOMs.
const goPath, standard = "sallyport.dev/sallyport", "std"

// A module is one that the programs contain.
type module struct {
	path, version string
	// ids are SPDX's names of its licences, and text what has to be passed on with them.
	ids  []string
	text string
}

// inventory writes which modules the programs contain, as an SBOM, and under which licences.
func (r *release) inventory(ctx context.Context) error {
	modules, err := r.modules(ctx)
	if err != nil {
		return err
	}
	var texts strings.Builder
	var components []cyclonedx.Component
	for _, m := range modules {
		fmt.Fprintf(&texts, "%s %s (%s)\n\n%s\n%s\n\n", m.path, m.version, strings.Join(m.ids, ", "), m.text, strings.Repeat("-", 80))
		components = append(components, m.component(cyclonedx.ComponentTypeLibrary))
	}
	own := module{path: goPath, version: r.version, ids: []string{"Apache-2.0"}}.component(cyclonedx.ComponentTypeApplication)
	bom := cyclonedx.NewBOM()
	bom.Metadata, bom.Components = &cyclonedx.Metadata{Timestamp: r.when.Format(time.RFC3339), Component: &own}, &components
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	r.bill = out.Bytes()
	if err := os.WriteFile(r.file("sallyport_%s_sbom.cdx.json", r.version), r.bill, 0o644); err != nil {
		return err
	}
	return os.WriteFile(r.licences(), []byte(texts.String()), 0o644)
}

// licences returns the path of the file with the licences of the modules.
func (r *release) licences() string { return r.file("sallyport_%s_licenses.txt", r.version) }

func (m module) component(kind cyclonedx.ComponentType) cyclonedx.Component {
	url := "pkg:golang/" + m.path + "@" + m.version
	licences := cyclonedx.Licenses{}
	for _, id := range m.ids {
		licences = append(licences, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return cyclonedx.Component{Type: kind, BOMRef: url, PackageURL: url, Name: m.path, Version: m.version, Licenses: &licences}
}

// modules returns what the programs of all platforms contain, by path.
func (r *release) modules(ctx context.Context) ([]module, error) {
	all := map[string]module{}
	for _, p := range slices.Concat(r.platforms, r.imagePlatforms) {
		binary, err := r.binary(ctx, p)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		all[standard] = module{path: standard, version: strings.TrimPrefix(info.GoVersion, "go")}
		for _, d := range info.Deps {
			all[d.Path] = module{path: d.Path, version: d.Version}
		}
	}
	folders, err := r.folders(ctx, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return nil, err
	}
	for path, m := range all {
		if m.ids, m.text, err = licencesIn(path, folders[path]); err != nil {
			return nil, fmt.Errorf("looking for the licence of %s: %w", path, err)
		}
		all[path] = m
	}
	return slices.SortedFunc(maps.Values(all), func(a, b module) int { return cmp.Compare(a.path, b.path) }), nil
}

// folders returns the folders of modules, by path.
func (r *release) folders(ctx context.Context, paths []string) (map[string]string, error) {
	root, err := output(ctx, r.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	folders := map[string]string{standard: strings.TrimSpace(root)}
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == standard })
	if len(paths) == 0 {
		return folders, nil // go list would name the main module.
	}
	list, err := output(ctx, r.root, nil, "go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}, paths...)...)
	for line := range strings.Lines(list) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		folders[path] = folder
	}
	return folders, err
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	noticeFile  = regexp.MustCompile(`(?i)^notice`)
	// headers are the files whose head is the only place where a module says its licence.
	headers = map[string]string{"github.com/openreports/reports-api": "apis/openreports.io/v1alpha1/report_types.go"}
)

// licencesIn returns the licences of a module in a folder, and their texts with its notices.
func licencesIn(path, folder string) (ids []string, text string, err error) {
	entries, err := fs.ReadDir(os.DirFS(folder), ".")
	if err != nil {
		return nil, "", err
	}
	names := []string{}
	for _, e := range entries {
		if !e.IsDir() && (licenceFile.MatchString(e.Name()) || noticeFile.MatchString(e.Name())) {
			names = append(names, e.Name())
		}
	}
	if header := headers[path]; header != "" {
		names = append(names, header)
	}
	var texts []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, "", err
		}
		matches := licensecheck.Scan(text).Match
		for _, match := range matches {
			if !noticeFile.MatchString(name) {
				ids = append(ids, match.ID)
			}
		}
		if name == headers[path] && len(matches) > 0 {
			text = text[:matches[0].End]
		}
		texts = append(texts, string(text))
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return nil, "", fmt.Errorf("no known one is in the files LICENSE* and COPYING* of %s", folder)
	}
	return slices.Compact(ids), strings.Join(texts, "\n"), nil
}
