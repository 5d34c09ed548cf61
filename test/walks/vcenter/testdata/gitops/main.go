// Command gitops applies manifests as Argo CD and Flux do, or compares them with what the cluster has by the libraries of both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-openapi/pkg/util/proto"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// argo and flux are their field managers.
const argo, flux = "argocd-controller", "kustomize-controller"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gitops apply|diff < MANIFESTS")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// applier applies on the server's side, as the dry runs of Argo CD do.
type applier struct{ client.Client }

func (a applier) Run(ctx context.Context, object *unstructured.Unstructured, manager string) (string, error) {
	object = object.DeepCopy()
	if err := a.Patch(ctx, object, client.Apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner(manager)); err != nil {
		return "", err
	}
	predicted, err := json.Marshal(object)
	return string(predicted), err
}

// apply leaves the annotation of kubectl apply, too, by which Argo CD compares without a dry run.
func apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		last, err := json.Marshal(object)
		if err != nil {
			return err
		}
		annotated := object.DeepCopy()
		annotations := annotated.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[diff.AnnotationLastAppliedConfig] = string(last)
		annotated.SetAnnotations(annotations)
		if err := c.Patch(ctx, annotated, client.Apply, client.ForceOwnership, client.FieldOwner(argo)); err != nil {
			return err
		}
		if err := c.Patch(ctx, object.DeepCopy(), client.Apply, client.ForceOwnership, client.FieldOwner(flux)); err != nil {
			return err
		}
	}
	return nil
}

// schemas are those that the API server publishes.
func schemas(config *rest.Config) (*managedfields.GvkParser, error) {
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	document, err := discovered.OpenAPISchema()
	if err != nil {
		return nil, err
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		return nil, err
	}
	return managedfields.NewGVKParser(models, false)
}

func run(ctx context.Context, what string, manifests io.Reader) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(manifests, 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		objects = append(objects, object)
	}
	if what == "apply" {
		return apply(ctx, c, objects)
	}
	types, err := schemas(config)
	if err != nil {
		return err
	}
	flow := ssa.NewResourceManager(c, nil, ssa.Owner{Field: flux, Group: "kustomize.toolkit.fluxcd.io"})
	for _, object := range objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(object.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
			return err
		}
		for how, options := range map[string][]diff.Option{
			"server-side": {diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(applier{c}), diff.WithIgnoreMutationWebhook(false)},
			"structured":  {diff.WithStructuredMergeDiff(true)},
			"three-way":   nil,
		} {
			result, err := diff.Diff(object.DeepCopy(), live.DeepCopy(), append(options, diff.WithManager(argo), diff.WithGVKParser(types))...)
			if err != nil {
				return fmt.Errorf("%s: %w", how, err)
			}
			if result.Modified {
				fmt.Printf("Argo CD, %s: %s %s differs:\n%s\n%s\n", how, object.GetKind(), object.GetName(), result.NormalizedLive, result.PredictedLive)
			}
		}
		entry, _, predicted, err := flow.Diff(ctx, object.DeepCopy(), ssa.DefaultDiffOptions())
		if err != nil {
			return err
		}
		if entry.Action != ssa.UnchangedAction {
			fmt.Printf("Flux: %s: %v\n", entry, predicted)
		}
	}
	return nil
}
