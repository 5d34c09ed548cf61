package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	rego "github.com/open-policy-agent/opa/v1/ast"
)

// walks are the packages whose tests walk through what several folders do, on a control plane or at length. They are run for the
// folders that they walk through, and only if that is asked for.
var walks = []struct {
	folder string
	tests  []string
}{
	{"certs", []string{"./test/e2e", "./charts"}},
	{"policies", []string{"./test/inputs", "./test/deletion", "./test/guards", "./test/foreign", "./test/e2e"}},
	{"webhooks", []string{"./test/foreign", "./test/e2e", "./cmd/sallyport/plugin"}},
	{"reconcilers/operation", []string{"./test/model", "./test/e2e"}},
	{"reconcilers/virtualmachine", []string{"./test/model", "./test/e2e"}},
	{"reconcilers/claim", []string{"./test/model", "./test/sweep"}},
	{"reconcilers/runtime", []string{"./test/vcenter", "./test/sweep"}},
	{"reconcilers/vsphereserver", []string{"./test/vcenter", "./test/e2e"}},
	{"reconcilers/policy", []string{"./test/foreign", "./test/e2e"}},
}

// isWalk says whether a package is run only as a walk, though it imports what was changed.
func isWalk(pkg string) bool {
	return strings.HasPrefix(pkg, "./test/") || slices.Contains([]string{"./charts", "./cmd/demo", "./cmd/sallyport/plugin"}, pkg)
}

// The stages of a trial, in order. A mutant that one catches does not meet the next.
const (
	own = iota
	importing
	walking
	stages
)

// tree is the code and which package imports which, by paths such as ./webhooks/engine.
type tree struct {
	files    []string // those that are changed
	importer map[string][]string
	tested   map[string]bool
}

func load(ctx context.Context, folders []string) (*tree, error) {
	out, err := exec.CommandContext(ctx, "go", "list",
		"-json=Dir,ImportPath,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles,Module", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	t := &tree{importer: map[string][]string{}, tested: map[string]bool{}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, ImportPath                                                        string
			GoFiles, Imports, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
			Module                                                                 struct{ Path string }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the list of packages: %w", err)
		}
		here := func(path string) string { return "." + strings.TrimPrefix(path, p.Module.Path) }
		pkg := here(p.ImportPath)
		t.tested[pkg] = len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if strings.HasPrefix(path, p.Module.Path+"/") && here(path) != pkg && !slices.Contains(t.importer[here(path)], pkg) {
				t.importer[here(path)] = append(t.importer[here(path)], pkg)
			}
		}
		for _, name := range p.GoFiles {
			if file := filepath.Join(pkg, name); within(file, folders) {
				t.files = append(t.files, file)
			}
		}
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if isModule(path) {
				t.files = append(t.files, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for Rego: %w", err)
		}
	}
	slices.Sort(t.files)
	return t, nil
}

func isModule(path string) bool {
	return strings.HasSuffix(path, ".rego") && !strings.HasSuffix(path, "_test.rego") && !strings.Contains(path, "testdata")
}

func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == filepath.Clean(folder) || strings.HasPrefix(path, filepath.Clean(folder)+"/")
	})
}

// mutants of all files, in the order of the seed.
func (t *tree) mutants(seed uint64) ([]mutant, error) {
	var all []mutant
	for _, file := range t.files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := edits(file, source)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{string(source): true}
		for _, e := range found {
			if m := e.apply(file, source); !seen[string(m.source)] {
				seen[string(m.source)] = true
				all = append(all, m)
			}
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// packageOf is the package that a file is compiled into, or embedded by.
func (t *tree) packageOf(file string) string {
	dir := filepath.Dir(file)
	for _, known := t.tested["./"+dir]; !known && dir != "."; _, known = t.tested["./"+dir] {
		dir = filepath.Dir(dir)
	}
	return "./" + dir
}

// patience is how long tests that a mutant lets hang are waited for, of all packages that are run together. `make test` says how long
// they take without one; what fails then says nothing of mutants.
const patience = 5 * time.Minute

// stages of a mutant's trial: the packages of each.
func (t *tree) stages(m mutant, wide bool) (s [stages][]string) {
	pkg := t.packageOf(m.file)
	s[own] = []string{pkg}
	for _, importer := range t.importer[pkg] {
		if !isWalk(importer) {
			s[importing] = append(s[importing], importer)
		}
	}
	for _, w := range walks {
		if wide && within(m.file, []string{w.folder}) {
			s[walking] = append(s[walking], w.tests...)
		}
	}
	for i := range s {
		s[i] = slices.DeleteFunc(s[i], func(pkg string) bool { return !t.tested[pkg] })
	}
	return s
}

// runner tries mutants. Whatever it writes is below a folder of its own.
type runner struct {
	tree      *tree
	wide      bool
	folder    string
	sallyport string // the program, for the tests of policies
}

func newRunner(ctx context.Context, t *tree, wide bool) (*runner, error) {
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	r := &runner{tree: t, wide: wide, folder: folder, sallyport: filepath.Join(folder, "sallyport")}
	if slices.ContainsFunc(t.files, isModule) {
		if text, err := command(ctx, "go", "build", "-o", r.sallyport, "./cmd/sallyport"); err != nil {
			r.close()
			return nil, fmt.Errorf("building cmd/sallyport: %w: %s", err, text)
		}
	}
	return r, nil
}

// verdicts judges mutants, so many at a time, and gives what became of them in their order, so that a seed says which ones are counted.
func (r *runner) verdicts(ctx context.Context, mutants []mutant, reasons map[string]string, jobs int) iter.Seq[verdict] {
	const ahead = 4 // One that takes long does not keep the others waiting.
	return func(yield func(verdict) bool) {
		ctx, stop := context.WithCancel(ctx)
		free, coming := make(chan struct{}, jobs), make(chan chan verdict, ahead*jobs)
		var all sync.WaitGroup
		all.Go(func() {
			defer close(coming)
			for _, m := range mutants {
				result := make(chan verdict, 1)
				select {
				case coming <- result:
				case <-ctx.Done():
					return
				}
				all.Go(func() {
					free <- struct{}{}
					defer func() { <-free }()
					v := verdict{mutant: m, reason: reasons[m.key()]}
					if v.reason == "" && ctx.Err() == nil {
						v = r.judge(ctx, m)
					}
					result <- v
				})
			}
		})
		for result := range coming {
			if !yield(<-result) {
				break
			}
		}
		stop()
		all.Wait()
	}
}

func (r *runner) close() { _ = os.RemoveAll(r.folder) }

// verdict is what became of a mutant.
type verdict struct {
	mutant mutant
	reason string   // why no test can catch it
	broken bool     // does not compile
	by     string   // the package that caught it
	stage  int      // when
	ran    []string // what did not
	err    error
}

// judge runs the tests stage by stage, until one fails.
func (r *runner) judge(ctx context.Context, m mutant) verdict {
	v := verdict{mutant: m}
	folder, err := os.MkdirTemp(r.folder, "")
	if err != nil {
		v.err = err
		return v
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if isModule(m.file) {
		if v.broken, v.err = !regoCompiles(m), nil; v.broken {
			return v
		}
		caught, err := r.testPolicies(ctx, m, folder)
		if v.ran = append(v.ran, "policy test"); caught || err != nil {
			v.by, v.err = "policy test", err
			return v
		}
	}
	overlay, err := writeOverlay(m, folder)
	if err != nil {
		v.err = err
		return v
	}
	for stage, packages := range r.tree.stages(m, r.wide) {
		packages = slices.DeleteFunc(packages, func(pkg string) bool { return slices.Contains(v.ran, pkg) })
		if len(packages) == 0 {
			continue
		}
		v.ran = append(v.ran, packages...)
		out, err := test(ctx, packages, "-short", "-overlay", overlay, "-timeout", patience.String())
		if failed := failure.FindStringSubmatch(out); failed != nil {
			v.by, v.stage, v.broken = failed[1], stage, strings.Contains(out, "[build failed]")
			return v
		} else if err != nil && ctx.Err() == nil {
			v.err = fmt.Errorf("testing %s: %w: %s", m, err, out)
			return v
		}
	}
	return v
}

var failure = regexp.MustCompile(`(?m)^FAIL\t(\S+)`)

// testPolicies runs the tests in Rego on a copy of the folder, as `make test-rego` does.
func (r *runner) testPolicies(ctx context.Context, m mutant, folder string) (bool, error) {
	root := filepath.Join(folder, "policies")
	if err := os.CopyFS(root, os.DirFS("policies")); err != nil {
		return false, err
	}
	if err := os.WriteFile(filepath.Join(folder, m.file), m.source, 0o600); err != nil {
		return false, err
	}
	_, err := command(ctx, r.sallyport, "policy", "test", root, "--coverage", "100")
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return true, nil
	}
	return false, err
}

// regoCompiles says whether the policies compile with the mutant.
func regoCompiles(m mutant) bool {
	modules := map[string]*rego.Module{}
	err := filepath.WalkDir("policies", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !isModule(path) {
			return err
		}
		source, err := os.ReadFile(path)
		if path == m.file {
			source = m.source
		}
		if err != nil {
			return err
		}
		modules[path], err = rego.ParseModule(path, string(source))
		return err
	})
	if err != nil {
		return false
	}
	compiler := rego.NewCompiler().WithStrict(true)
	compiler.Compile(modules)
	return !compiler.Failed()
}

// writeOverlay has the Go command read the mutant in place of the file.
func writeOverlay(m mutant, folder string) (string, error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(folder, "mutant"), filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(mutated, m.source, 0o600), os.WriteFile(overlay, text, 0o600))
}

func test(ctx context.Context, packages []string, flags ...string) (string, error) {
	return command(ctx, slices.Concat([]string{"go", "test", "-count=1", "-failfast", "-vet=off"}, flags, packages)...)
}

// command runs a program nicely, and with a bound of memory: mutants may loop.
func command(ctx context.Context, args ...string) (string, error) {
	bounded := []string{"-c", `ulimit -v 16000000; exec nice -n 10 "$@"`, "sh"}
	out, err := exec.CommandContext(ctx, "sh", append(bounded, args...)...).CombinedOutput()
	return string(out), err
}
