package site

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

var update = flag.Bool("update", false, "write the output of commands into the files with which scripts compare it (cmp)")

// Update reports whether tests write what is expected, by the flag -update.
func Update() bool { return *update }

// Scripts are scripts of testscript in a folder.
//
// Each script runs in a namespace of its own, which has the name of the script and is the default one of kubectl. Beside the commands of
// testscript there are:
//
//	[!] kubectl ARGUMENT...        as the administrator, or with --as, for at most step.Patience; repeated after a conflict, and if a test
//	                               run of a policy took too long
//	records                        prints the decision records about the namespace, a line of JSON each
//	audit                          prints the events about the namespace of the API server's audit log
//	metrics NAME                   prints the metrics of the manager that begin with NAME
//	kstatus KIND/NAME...           prints how Flux and others judge two or more objects
//	[!] wait-for PATTERN COMMAND   repeats one of the commands above until the pattern matches what it prints
//	capture NAME                   sets an environment variable to what the last command printed
//	line NAME FILE TEXT            sets an environment variable to the number of the first line of a file with a text
//	edit FILE OLD NEW              replaces the first occurrence of a text in a file
//	expand FILE...                 expands environment variables in files
//	hold|release MACHINE TASK      keeps the tasks of a kind of a machine, such as PowerOn, from ending, until release
//	ignore-shutdown MACHINE        has the guest of a machine ignore shutdowns
//	[!] instance UID               requires an instance for the VirtualMachine with the UID
//	disk UID                       prints the ID of the disk of the VirtualDisk with the UID
//	manager stop|start [PROGRAM]   stops the manager, or starts it. The end of the script starts the usual program again
//	manager remove                 stops the manager for good
//
// $SOON is a time in half an hour, $PAST one a minute ago, $FILES the folder testdata/files, and $MANAGER the program of the manager.
type Scripts struct {
	// Dir is the folder.
	Dir string
	// Alone runs one script after another, because they change what all see.
	Alone bool
	// Conditions are those that lines may have, such as [!short].
	Conditions map[string]bool
	// Variables are added to the environment.
	Variables map[string]string
	// Commands are added to those above.
	Commands map[string]func(ts *testscript.TestScript, neg bool, args []string)
}

// Run runs the scripts as subtests.
func (s *Site) Run(t *testing.T, scripts Scripts) {
	t.Helper()
	if s.up != nil {
		s.Up(t)
	}
	all := maps.Clone(commands)
	maps.Copy(all, scripts.Commands)
	p := testscript.Params{
		Dir: scripts.Dir, Cmds: all, RequireUniqueNames: true, UpdateScripts: *update,
		Setup: func(e *testscript.Env) error { return s.setup(e, scripts) },
		Condition: func(name string) (bool, error) {
			holds, known := scripts.Conditions[name]
			if !known {
				return false, errors.New("the test does not say whether it holds")
			}
			return holds, nil
		},
	}
	if !scripts.Alone {
		testscript.Run(t, p)
		return
	}
	p.Deadline, _ = t.Deadline()
	testscript.RunT(alone{t}, p)
}

// alone runs scripts one after another.
type alone struct{ *testing.T }

func (alone) Parallel()     {}
func (alone) Verbose() bool { return testing.Verbose() }

func (a alone) Run(name string, f func(testscript.T)) {
	a.T.Run(name, func(t *testing.T) { f(alone{t}) })
}

// script is what commands know of the script that they are in.
type script struct {
	*Site
	namespace string
	variables []string          // the environment of kubectl
	held      map[string]func() // by machine and task: releases it
	policies  map[string]bool   // the names of those that were there before; nil if other scripts run beside it
}

type key struct{}

func scriptOf(ts *testscript.TestScript) *script { return ts.Value(key{}).(*script) }

func (s *Site) setup(e *testscript.Env, scripts Scripts) (err error) {
	own := &script{Site: s, namespace: strings.TrimPrefix(filepath.Base(e.WorkDir), "script-"), held: map[string]func(){}}
	kubeconfig := filepath.Join(e.WorkDir, ".kubeconfig")
	if err := own.makeNamespace(kubeconfig); err != nil {
		return err
	}
	if scripts.Alone {
		if own.policies, err = s.policyNames(); err != nil {
			return err
		}
	}
	files, err := filepath.Abs("testdata/files")
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	e.Vars = append(e.Vars,
		"KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+filepath.Join(s.Dir, "kubectl-cache"), "KUBERC=off",
		"PATH="+s.Dir+string(os.PathListSeparator)+filepath.Dir(s.Plane.Assets.Kubectl)+string(os.PathListSeparator)+e.Getenv("PATH"),
		"FILES="+files, "MANAGER="+s.Options.Binary,
		"SOON="+now.Add(30*time.Minute).Format(time.RFC3339), "PAST="+now.Add(-time.Minute).Format(time.RFC3339),
	)
	for name, value := range scripts.Variables {
		e.Setenv(name, value)
	}
	own.variables = e.Vars
	e.Values[key{}] = own
	e.Defer(func() {
		if err := own.end(); err != nil {
			e.T().Fatal(err)
		}
	})
	return nil
}

// makeNamespace creates the namespace of a script, and writes a kubeconfig in which it is the default.
func (s *script) makeNamespace(kubeconfig string) error {
	c, err := install.Client(s.Plane.Config)
	if err != nil {
		return err
	}
	if err := c.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}); err != nil {
		return fmt.Errorf("creating the namespace of the script: %w", err)
	}
	config, err := clientcmd.LoadFromFile(s.Plane.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.Contexts[config.CurrentContext].Namespace = s.namespace
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// end undoes what outlasts a script.
func (s *script) end() (err error) {
	for _, release := range s.held {
		release()
	}
	if s.running != s.Options.Binary {
		err = s.run(s.Options.Binary)
	}
	if err == nil && s.policies != nil {
		err = s.removePolicies()
	}
	return err
}

// removePolicies deletes the RegoPolicies that a script has left, as one that failed: they would decide about the objects of the next ones. A
// library is not deleted before the policies that import it.
func (s *script) removePolicies() (err error) {
	left, err := s.policyNames()
	if err != nil {
		return err
	}
	for range 2 {
		var errs []error
		for name := range left {
			if !s.policies[name] {
				errs = append(errs, client.IgnoreNotFound(s.Client.Delete(context.Background(), policyOf(name))))
			}
		}
		if err = errors.Join(errs...); err == nil {
			return nil
		}
	}
	return fmt.Errorf("removing the policies of the script: %w", err)
}

func (s *Site) policyNames() (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RegoPolicyList"))
	if err := s.Client.List(context.Background(), list); err != nil {
		return nil, fmt.Errorf("listing the policies: %w", err)
	}
	names := map[string]bool{}
	for _, o := range list.Items {
		names[o.Name] = true
	}
	return names, nil
}

func policyOf(name string) client.Object {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RegoPolicy"))
	return o
}

// run has a program be the manager, or none.
func (s *Site) run(program string) error {
	s.running = ""
	if err := s.Sallyport.Stop(); err != nil || program == "" {
		return err
	}
	o := s.Options
	o.Binary = program
	if err := s.Sallyport.Resume(context.Background(), o); err != nil {
		return fmt.Errorf("starting the manager: %w\n%s", err, install.Tail(s.Logs.String(), 20))
	}
	s.running = program
	return nil
}

// printer is a command that prints something.
type printer func(ctx context.Context, ts *testscript.TestScript, args []string) (stdout, stderr string, err error)

var printers = map[string]printer{"kubectl": kubectl, "records": records, "audit": audit, "metrics": metrics, "kstatus": kstatus}

// again is what a user does about an error: the same once more. A status was written between the read and the write, or the machine is busy.
var again = regexp.MustCompile("the object has been modified|its test run did not finish within")

func kubectl(ctx context.Context, ts *testscript.TestScript, args []string) (stdout, stderr string, err error) {
	if args[0] == "wait" {
		args = append(slices.Clone(args), fmt.Sprintf("--timeout=%v", step.Patience-10*time.Second)) // before it is killed
	}
	s := scriptOf(ts)
	timeout := step.Await(ctx, func(ctx context.Context) (bool, error) {
		var out, errs strings.Builder
		command := exec.CommandContext(ctx, s.Plane.Assets.Kubectl, args...)
		command.Dir, command.Stdout, command.Stderr = ts.MkAbs("."), &out, &errs
		command.Env = s.variables
		err = command.Run()
		stdout, stderr = out.String(), errs.String()
		return err == nil || !again.MatchString(stderr), nil
	})
	if err == nil {
		err = timeout
	}
	return stdout, stderr, err
}

func records(_ context.Context, ts *testscript.TestScript, _ []string) (stdout, _ string, err error) {
	s := scriptOf(ts)
	for line := range strings.Lines(s.Records.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		var record struct{ Request struct{ Namespace string } }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return "", "", fmt.Errorf("stdout has a line that is no decision record: %q: %w", line, err)
		}
		if record.Request.Namespace == s.namespace {
			stdout += line
		}
	}
	return stdout, "", nil
}

func audit(_ context.Context, ts *testscript.TestScript, _ []string) (stdout, _ string, err error) {
	s := scriptOf(ts)
	log, err := os.ReadFile(s.Audit)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, fmt.Sprintf(`"namespace":%q`, s.namespace)) {
			stdout += line
		}
	}
	return stdout, "", err
}

func metrics(ctx context.Context, ts *testscript.TestScript, args []string) (stdout, _ string, err error) {
	all, err := scriptOf(ts).Sallyport.Metrics(ctx)
	for line := range strings.Lines(all) {
		if strings.HasPrefix(line, args[0]) {
			stdout += line
		}
	}
	return stdout, "", err
}

// kstatus prints how Flux and others judge objects: InProgress, Failed, Current or Terminating, and why.
func kstatus(ctx context.Context, ts *testscript.TestScript, args []string) (stdout, stderr string, err error) {
	text, stderr, err := kubectl(ctx, ts, append([]string{"get", "-o", "json"}, args...))
	if err != nil {
		return "", stderr, err
	}
	list := &unstructured.UnstructuredList{}
	if err := json.Unmarshal([]byte(text), list); err != nil {
		return "", "", err
	}
	for i := range list.Items {
		is, err := status.Compute(&list.Items[i])
		if err != nil {
			return "", "", err
		}
		stdout += fmt.Sprintf("%s %s: %s: %s\n", list.Items[i].GetKind(), list.Items[i].GetName(), is.Status, is.Message)
	}
	return stdout, stderr, nil
}
