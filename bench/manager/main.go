// The least that a manager in Go is: controller-runtime with a cache of the kinds that ours watches, and reconcilers that
// look at what they are told of and do nothing. No operator that does our job with it can be smaller.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                 server.Options{BindAddress: "127.0.0.1:9098"},
		HealthProbeBindAddress:  "127.0.0.1:9099",
		LeaderElection:          true,
		LeaderElectionID:        "bench-manager",
		LeaderElectionNamespace: "default",
		// The next one need not wait for this one's lease to run out.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	leads := func(*http.Request) error {
		select {
		case <-manager.Elected():
			return nil
		default:
			return errors.New("another manager leads")
		}
	}
	if err := manager.AddHealthzCheck("leads", leads); err != nil {
		return err
	}
	for _, kind := range []string{"Infra", "DHCPServer", "DNSServer", "ProxyServer"} {
		own := &unstructured.Unstructured{}
		own.SetGroupVersionKind(schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: kind})
		builder := ctrl.NewControllerManagedBy(manager).For(own)
		if kind != "Infra" {
			for _, owned := range []client.Object{
				&appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.ServiceAccount{}, &corev1.Pod{},
				&discoveryv1.EndpointSlice{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
			} {
				builder = builder.Owns(owned)
			}
		}
		if err := builder.Complete(looking{manager.GetClient(), own}); err != nil {
			return err
		}
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// Reads what it is told of.
type looking struct {
	client.Client
	kind *unstructured.Unstructured
}

func (l looking) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	found := l.kind.DeepCopy()
	if err := l.Get(ctx, request.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).V(1).Info("looked", "generation", found.GetGeneration())
	return ctrl.Result{}, nil
}
