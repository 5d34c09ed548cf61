// Command gatekeeper decides with the constraint framework that Gatekeeper is made of, for ../main.go to compare with. It does
// as lines on its standard input say, and answers each with a line:
//
//	run N M   decide N requests with M operations in the inventory
//	cpu       how much CPU time the process has used, in nanoseconds
//
// Its argument is a folder with operation.json, review.json and parameters.json.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // for the rule
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

//go:embed rule.rego
var rule string

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func serve(folder string) error {
	review, err := os.ReadFile(filepath.Join(folder, "review.json"))
	if err != nil {
		return err
	}
	sizes := map[int]*client.Client{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var n, objects int
		answer := "ok"
		if _, err := fmt.Sscanf(lines.Text(), "run %d %d", &n, &objects); err == nil { // anything else asks for the time
			if sizes[objects] == nil {
				sizes[objects], err = inventory(folder, objects)
				if err == nil {
					err = expect(sizes[objects], review, "busy-00001", true)
				}
			}
			if err == nil {
				err = decide(sizes[objects], review, n)
			}
			if err != nil {
				answer = strings.ReplaceAll(err.Error(), "\n", " ")
			}
		} else {
			answer = fmt.Sprint(cpu())
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

func cpu() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it has no reason to
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// inventory makes a client that knows of so many unfinished operations, of which one is in the way of the one that is asked for.
func inventory(folder string, objects int) (*client.Client, error) {
	driver, err := rego.New()
	if err != nil {
		return nil, err
	}
	c, err := client.NewClient(client.Targets(target{}), client.Driver(driver), client.EnforcementPoints("audit"))
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if _, err := c.AddTemplate(ctx, template()); err != nil {
		return nil, err
	}
	constraint, err := constraint(folder)
	if err != nil {
		return nil, err
	}
	if _, err := c.AddConstraint(ctx, constraint); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "operation.json"))
	if err != nil {
		return nil, err
	}
	for i := range objects {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("MACHINE"), fmt.Appendf(nil, "busy-%05d", i)), o); err != nil {
			return nil, err
		}
		if _, err := c.AddData(ctx, o); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func template() *templates.ConstraintTemplate {
	source := &schema.Source{Rego: rule, Version: "v1"}
	return &templates.ConstraintTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "supersede"},
		Spec: templates.ConstraintTemplateSpec{
			CRD: templates.CRD{Spec: templates.CRDSpec{
				Names: templates.Names{Kind: "Supersede"},
				Validation: &templates.Validation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
			Targets: []templates.Target{{Target: targetName, Code: []templates.Code{{
				Engine: schema.Name, Source: &templates.Anything{Value: source.ToUnstructured()},
			}}}},
		},
	}
}

func constraint(folder string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(filepath.Join(folder, "parameters.json"))
	if err != nil {
		return nil, err
	}
	var parameters map[string]any
	if err := json.Unmarshal(text, &parameters); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Supersede",
		"metadata": map[string]any{"name": "supersede"},
		"spec":     map[string]any{"parameters": parameters},
	}}, nil
}

// decide asks n times about an operation for a machine that has none, which is allowed.
func decide(c *client.Client, review []byte, n int) error {
	for range n {
		if err := expect(c, review, "web-00001", false); err != nil {
			return err
		}
	}
	return nil
}

func expect(c *client.Client, review []byte, machine string, denied bool) error {
	request, err := decode(bytes.ReplaceAll(review, []byte("MACHINE"), []byte(machine)))
	if err != nil {
		return err
	}
	responses, err := c.Review(context.Background(), request)
	if err != nil {
		return err
	}
	if found := len(responses.Results()) > 0; found != denied {
		return fmt.Errorf("an operation for %s is denied: %v, wanted %v", machine, found, denied)
	}
	return nil
}
