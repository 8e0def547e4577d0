"""Processes that work together: how they are launched and watched, and how they communicate."""
